"""Gauges that are read at each scrape."""

from __future__ import annotations

import sys

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.models.nvml import Nvml
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, Faults
from tests.service.following import BODY
from tests.service.observe import samples

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.first_stage.cache import VectorCache
from cerberank_models.token_cache import ENTRY_BYTES, TokenCache
from cerberank_service.telemetry.collectors import CacheCollector, DeviceCollector, ScrapedSeries
from cerberank_service.telemetry.series import LABELLED_VERSION, PREFIX, TOKEN_CACHE, VECTOR_CACHE

RUNNING = "cerberank_engine_running{model=fake-ranker,version=7}"


def test_samples_are_those_of_the_moment() -> None:
    """A label that moved leaves no series of the old version behind."""
    rows = [(("m", "stable", "1"), 1.0)]
    registry = CollectorRegistry()
    registry.register(ScrapedSeries(LABELLED_VERSION, lambda: rows))
    labels = {"model": "m", "label": "stable", "version": "1"}
    assert registry.get_sample_value("cerberank_labelled_version", labels) == 1.0
    rows[:] = [(("m", "stable", "2"), 1.0)]
    assert registry.get_sample_value("cerberank_labelled_version", labels) is None
    assert registry.get_sample_value("cerberank_labelled_version", labels | {"version": "2"}) == 1.0


def test_what_is_not_known_has_no_sample() -> None:
    """A nought would be a claim; the series are declared all the same."""
    registry = CollectorRegistry()
    registry.register(DeviceCollector(lambda: None, lambda: None))
    text = generate_latest(registry).decode()
    assert "# HELP cerberank_device_memory_used_bytes" in text
    assert registry.get_sample_value("cerberank_device_memory_used_bytes") is None
    registry = CollectorRegistry()
    registry.register(DeviceCollector(lambda: DeviceMemory(total=10, free=4), lambda: None))
    assert registry.get_sample_value("cerberank_device_memory_used_bytes") == 6
    assert registry.get_sample_value("cerberank_device_utilisation_ratio") is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_service_shows_its_gpu(serve: Serve, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """By NVML, which no failed CUDA context blocks; nothing on a processor."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(total=1000, free=100))
    found = samples(serve(FakeBackend(), device=device, backend="onnx", precision="int8"))
    shown = {name: value for name, value in found.items() if name.startswith("cerberank_device_")}
    expected = {
        "cerberank_device_memory_total_bytes{}": 1000,
        "cerberank_device_memory_used_bytes{}": 900,
        "cerberank_device_utilisation_ratio{}": 0.4,
    }
    assert shown == (expected if device == "cuda" else {})


def test_an_engine_that_has_ended_is_shown(serve: Serve) -> None:
    """1 while it takes questions, 0 when its thread has failed."""
    backend = FakeBackend()
    client = serve(backend)
    assert samples(client)[RUNNING] == 1
    backend.faults = Faults(always=True, error=SystemExit)
    assert client.post("/v1/rank", json=BODY).status_code == 503
    assert samples(client)[RUNNING] == 0


def test_the_cache_is_read_at_each_scrape() -> None:
    """Names, types and meanings are those of the table; a later scrape has later counts."""
    cache, registry = TokenCache(1000), CollectorRegistry()
    registry.register(CacheCollector(cache, TOKEN_CACHE))
    assert [(each.name, each.type, each.documentation) for each in registry.collect()] == [
        (PREFIX + each.name, each.kind, each.help) for each in TOKEN_CACHE
    ]
    names = ("cerberank_token_cache_hits_total", "cerberank_token_cache_misses_total", "cerberank_token_cache_bytes")
    found = []
    for texts in ([], ["a", "b"], ["a"]):
        cache.tokens("", texts, lambda rest: [text.encode() for text in rest])
        found.append([registry.get_sample_value(name) for name in names])
    assert found == [[0, 0, 0], [0, 2, 2 * (ENTRY_BYTES + 1)], [1, 2, 2 * (ENTRY_BYTES + 1)]]


def test_vectors_have_series_of_their_own() -> None:
    """The same collector reports a cache of vectors by the names of its table."""
    cache, registry = VectorCache(1000), CollectorRegistry()
    registry.register(CacheCollector(cache, VECTOR_CACHE, on_use=True))
    assert registry.get_sample_value("cerberank_vector_cache_misses_total") is None
    assert cache.find("", ["a"]) == [None]
    assert [each.name for each in registry.collect()] == [PREFIX + each.name for each in VECTOR_CACHE]
    assert registry.get_sample_value("cerberank_vector_cache_misses_total") == 1
