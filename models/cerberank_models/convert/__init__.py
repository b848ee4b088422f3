"""The conversion of models between the formats of Hugging Face, of checkpoints and of ONNX graphs."""
