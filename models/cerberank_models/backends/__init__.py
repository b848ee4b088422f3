"""Backends, which compute a ranker's stages on PyTorch or ONNX Runtime: the contract, a registry, and batching."""
