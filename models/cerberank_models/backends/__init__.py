"""Backends, which run a ranker's stages: the contract, a registry, PyTorch and ONNX Runtime, and batching."""
