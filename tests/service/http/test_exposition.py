from __future__ import annotations

from cerberank_service.http.exposition import Exposition
from cerberank_service.http.response_headers import Load
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.registry import VersionRegistry


def test_the_exposition_is_made_anew_at_most_once_a_second_for_each_format() -> None:
    """In between every request gets the same bytes; the load is asked for only when they are made."""
    now, asked = [10.0], 0

    def load() -> Load:
        nonlocal asked
        asked += 1
        return Load(queued_tokens=asked, queued_seconds=0.0, requests_in_flight=0)

    versions = VersionRegistry(Settings(), on_idle=lambda: None)
    exposition = Exposition(Metrics(), versions, load, seconds=1.0, clock=lambda: now[0])
    first, media_type = exposition("")
    assert media_type.startswith("text/plain")
    assert b"cerberank_queued_tokens 1.0" in first
    now[0] += 0.99
    assert exposition("*/*") == (first, media_type)
    for version in ("1.0.0", "9.9.9", "0.0.1; escaping=values"):
        assert exposition(f"application/openmetrics-text; version={version}")[1].startswith("application/openmetrics")
    assert asked == 2
    now[0] += 0.01
    assert b"cerberank_queued_tokens 3.0" in exposition("")[0]
    assert asked == 3
