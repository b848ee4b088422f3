"""The verbs of the `cerberank` program that need neither the service nor the training package."""
