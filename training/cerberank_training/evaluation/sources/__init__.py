"""The sources of an evaluation's rankings: checkpoints, a text ranker, a running service, a file of scores."""
