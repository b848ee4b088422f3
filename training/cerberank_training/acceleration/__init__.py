"""Makes an imported ranker faster without labels: exits that learn the model's own scores, and a drop schedule."""
