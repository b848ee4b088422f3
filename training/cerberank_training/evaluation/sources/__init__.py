"""Where an evaluation's rankings come from: checkpoints, a text ranker, a running service, a file of scores."""
