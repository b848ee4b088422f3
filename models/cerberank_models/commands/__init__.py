"""The commands of the program `cerberank` that need neither the service nor the training package."""
