"""Telemetry for operators: metrics, log lines and traces."""
