"""The repetition of the papers: their own kinds of training, their settings, and their tables."""
