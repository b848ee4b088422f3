from __future__ import annotations

from prometheus_client import CollectorRegistry

from cerberank_models.token_cache import ENTRY_BYTES, TokenCache
from cerberank_service.telemetry.series import PREFIX, TOKEN_CACHE
from cerberank_service.telemetry.token_cache_metrics import TokenCacheCollector


def test_the_cache_is_read_at_each_scrape() -> None:
    """Names, types and meanings are those of the table; a later scrape has later counts."""
    cache, registry = TokenCache(1000), CollectorRegistry()
    registry.register(TokenCacheCollector(cache))
    assert [(each.name, each.type, each.documentation) for each in registry.collect()] == [
        (PREFIX + each.name, each.kind, each.help) for each in TOKEN_CACHE
    ]
    names = ("cerberank_token_cache_hits_total", "cerberank_token_cache_misses_total", "cerberank_token_cache_bytes")
    found = []
    for texts in ([], ["a", "b"], ["a"]):
        cache.tokens("", texts, lambda rest: [text.encode() for text in rest])
        found.append([registry.get_sample_value(name) for name in names])
    assert found == [[0, 0, 0], [0, 2, 2 * (ENTRY_BYTES + 1)], [1, 2, 2 * (ENTRY_BYTES + 1)]]
