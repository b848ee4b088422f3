"""Telemetry: Prometheus series, log lines and OpenTelemetry spans."""
