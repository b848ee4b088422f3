"""Models become checkpoints, and checkpoints other forms of themselves."""
