"""Mines hard negatives: searches a corpus for each question, and keeps texts that are similar but not relevant."""
