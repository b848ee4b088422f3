"""The receivers of a run's figures: its log and the trackers."""
