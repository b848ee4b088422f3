"""Readers of common data formats, with the lists of their files: BEIR, MS MARCO, and tables."""
