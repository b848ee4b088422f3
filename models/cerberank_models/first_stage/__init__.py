"""The first stage: a bi-encoder that ranks texts, whose vectors can be known before the question arrives (TRMD)."""
