"""Pairwise training of text rankers on triples: TRMD's teachers, its students with and without distillation."""
