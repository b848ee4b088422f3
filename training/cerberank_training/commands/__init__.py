"""The commands of `cerberank` that need the training package."""
