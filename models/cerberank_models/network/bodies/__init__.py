"""Encoders, a file a family: the contract, a registry, and the post-LN encoder of BERT, ELECTRA and RoBERTa."""
