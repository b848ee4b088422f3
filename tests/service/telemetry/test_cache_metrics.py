from __future__ import annotations

from prometheus_client import CollectorRegistry

from cerberank_models.first_stage.cache import VectorCache
from cerberank_models.token_cache import ENTRY_BYTES, TokenCache
from cerberank_service.telemetry.cache_metrics import CacheCollector
from cerberank_service.telemetry.series import PREFIX, TOKEN_CACHE, VECTOR_CACHE


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
    registry.register(CacheCollector(cache, VECTOR_CACHE))
    assert cache.find("", ["a"]) == [None]
    assert [each.name for each in registry.collect()] == [PREFIX + each.name for each in VECTOR_CACHE]
    assert registry.get_sample_value("cerberank_vector_cache_misses_total") == 1
