"""Makes an imported ranker faster without labels: trains exits on the model's own scores, chooses a drop schedule."""
