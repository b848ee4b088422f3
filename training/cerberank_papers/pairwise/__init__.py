"""Pairwise training of text rankers on triples: TRMD's teachers, and its students with and without distillation."""
