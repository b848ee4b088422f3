"""The engine: the thread that owns a model, with admission control, fair scheduling, batches and waiting states."""
