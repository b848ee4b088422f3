"""Encoders, a file a family: the contract, a registry, the post-norm encoder of BERT and its kin, ModernBERT."""
