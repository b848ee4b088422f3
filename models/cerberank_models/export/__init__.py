"""A ranker becomes a checkpoint: ONNX graphs, the int8 form, parity checks and golden questions. Needs torch."""
