"""Limits of the HTTP server that are no settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of the HTTP server that are not settings; tests use smaller ones."""

    head_bytes: int = 32 * 1024
    """Largest size of a request's path and headers."""
    client_seconds: float = 30.0
    """Time-out for receiving a body."""
    exposition_seconds: float = 1.0
    """Age up to which an exposition of the metrics is given again, because making one takes milliseconds."""


PRODUCTION = Limits()
