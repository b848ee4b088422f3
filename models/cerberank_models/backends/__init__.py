"""What runs a ranker's stages: the contract, a registry, PyTorch and ONNX Runtime, and how pairs become batches."""
