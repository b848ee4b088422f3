"""The files that a format reads."""
