"""Encoders and decoders: the contract, a registry, and a module each for post-norm, pre-norm and causal bodies."""
