"""Servers started for a benchmark, and clients that ask them in open and closed loops."""
