"""The app as a Ray Serve deployment: a replica, and how many of them should run."""
