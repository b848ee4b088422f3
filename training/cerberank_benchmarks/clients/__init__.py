"""Servers that are started for a benchmark, and clients that load them in open and closed loops."""
