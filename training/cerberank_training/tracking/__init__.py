"""The display of a training run: its figures in a log and in trackers, its end in a few lines, runs in a table."""
