"""The app as a Ray Serve deployment."""
