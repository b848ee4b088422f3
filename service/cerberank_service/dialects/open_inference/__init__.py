"""The Open Inference Protocol v2 (KServe, Triton): `infer`, its tensors, and what describes a model."""
