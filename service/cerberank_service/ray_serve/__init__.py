"""The app as a Ray Serve deployment: the replica and the autoscaling policy."""
