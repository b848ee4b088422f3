"""The display of training runs: figures in a log and in trackers, a table of runs."""
