"""The display of training runs: figures in a log and in trackers, the closing lines of a command, a table of runs."""
