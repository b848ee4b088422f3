"""Where an evaluation's rankings come from: a checkpoint, a sequence of them, a running service, a file of scores."""
