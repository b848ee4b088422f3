"""Context-aware pre-training (SSP): continues the pre-training of an encoder on documents, in the layout of rankers."""
