"""The progress of training runs as users follow it: in a log, in trackers, in the table of runs."""
