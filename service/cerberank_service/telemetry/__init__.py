"""Telemetry: all that the service tells operators of itself."""
