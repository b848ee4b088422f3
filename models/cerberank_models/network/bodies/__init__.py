"""Encoders, a file a family: the contract, a registry, and the post-LN encoder of ALBERT, BERT, ELECTRA and RoBERTa."""
