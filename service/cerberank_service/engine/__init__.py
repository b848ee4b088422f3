"""The engine: one thread owns a model; admission control, fair scheduling, batches by stage, waiting hidden states."""
