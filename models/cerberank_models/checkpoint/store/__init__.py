"""Stores that checkpoints are pushed to and served from: versions and labels in a folder or behind an fsspec URL."""
