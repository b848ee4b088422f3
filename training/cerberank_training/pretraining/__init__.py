"""Context-aware pre-training (SSP): continues an encoder's pre-training on documents, with the layout that ranks."""
