"""The verbs of `cerberank` that need the training package."""
