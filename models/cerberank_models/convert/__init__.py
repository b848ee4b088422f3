"""Imports Hugging Face models as checkpoints, and exports checkpoints as ONNX graphs or Hugging Face models."""
