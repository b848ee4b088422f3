"""Starts servers for benchmarks, and loads them with clients in open and closed loops."""
