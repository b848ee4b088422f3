"""The ranker as PyTorch modules: layouts of tokens, the body, exits, and heads with faster equivalents of them."""
