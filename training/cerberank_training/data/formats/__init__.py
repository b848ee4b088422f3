"""Readers of the formats in which teams have their data: BEIR, MS MARCO, and rows of columns; which files are read."""
