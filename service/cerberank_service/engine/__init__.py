"""One thread that owns a model: admission, fair scheduling, steps through the stages, waiting states."""
