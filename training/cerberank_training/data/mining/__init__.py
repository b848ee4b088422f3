"""Mines hard negatives: searches a corpus for each question, and keeps similar texts that are not relevant."""
