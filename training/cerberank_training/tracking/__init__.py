"""What a training run shows: its figures in a log and in trackers, its end in a few lines, runs in a table."""
