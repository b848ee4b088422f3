"""Stores of checkpoints: training pushes versions to a folder or an fsspec URL, and services load them by label."""
