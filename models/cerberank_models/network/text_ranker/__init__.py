"""Rankers of texts as TRMD defines them: bi-encoders with one or two rankers, and cross-encoders that teach them."""
