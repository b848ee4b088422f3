"""The ranker as PyTorch modules: layouts of tokens, the transformer body, exits, heads, and the forms heads run in."""
