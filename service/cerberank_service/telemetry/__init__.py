"""What operators see: Prometheus series, log lines and OpenTelemetry spans."""
