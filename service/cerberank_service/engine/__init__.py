"""The engine: the thread that owns a model, with admission control, fair scheduling, batches by stage, and the hidden
states that wait between stages."""
