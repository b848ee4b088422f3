"""A head of a checkpoint becomes a sequence classifier that transformers and sentence-transformers load."""
