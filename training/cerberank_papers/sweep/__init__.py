"""`cerberank train sweep`: many runs of a training command, and a table of their results."""
