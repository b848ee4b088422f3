"""Measures the time to encode texts as the token ids of all pairs, with and without the token cache, in one thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from operator import truediv
from pathlib import Path
from statistics import median

from cerberank_benchmarks.report import Report, Value, bars
from cerberank_benchmarks.rounds import seconds_by_round
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Task, Workload
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import EncodedPairs, PairEncoder
from cerberank_models.token_cache import TokenCache

CACHE_BYTES = 64 * 1024 * 1024
"""The size of the full cache, which is the service's default."""
UNBOUNDED = 2**60
FILLED_WITH_TOKENS = 50
ROUNDS = 10
"""Number of rounds for each round of the settings; a single one only takes milliseconds."""
SYSTEMS = ("no cache", "cold, filling", "cold, full", "cached")


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates: medians of alternating runs in milliseconds, and medians of ratios by round."""
    checkpoint = read_checkpoint(settings.checkpoint or default_checkpoint())
    encoder, workload = checkpoint.encoder(), Workload(settings)
    full = _full_cache()
    rows = [_row(encoder, workload.task(size), full, settings.rounds * ROUNDS) for size in settings.candidates]
    return Report(
        name="encode",
        text=f"{checkpoint.config.name}'s tokenizer, one thread; milliseconds. Cold: none of the texts is cached, in a "
        f"cache that still has room, or in one of {CACHE_BYTES // 2**20} MB that is full and forgets. Cached: all are.",
        rows=rows,
        chart=bars(rows, "candidates", SYSTEMS, value_label="milliseconds"),
        problems=["texts that were to be cold were found in the cache"] if full.counts.hits else [],
    )


def _row(encoder: PairEncoder, task: Task, full: TokenCache, rounds: int) -> dict[str, Value]:
    question, candidates = task.question, task.candidates
    filling, warm, numbers = TokenCache(UNBOUNDED), TokenCache(UNBOUNDED), count()

    def cold(cache: TokenCache) -> EncodedPairs:
        """Encode in a new partition of the cache, so that no text is found; rows share the full cache."""
        return encoder.encode(question, candidates, cache, partition=f"{len(candidates)} {next(numbers)}")

    runs: dict[str, Callable[[], EncodedPairs]] = {
        "no cache": lambda: encoder.encode(question, candidates),
        "cold, filling": lambda: cold(filling),
        "cold, full": lambda: cold(full),
        "cached": lambda: encoder.encode(question, candidates, warm),
    }
    for each in runs.values():
        each()
    seconds = seconds_by_round(runs, rounds=rounds, label=f"encode {len(candidates)}")
    return {
        "candidates": len(candidates),
        "tokens": runs["cached"]().tokens,
        **{name: 1000.0 * median(seconds[name]) for name in SYSTEMS},
        **{f"{name} / no cache": median(map(truediv, seconds[name], seconds["no cache"])) for name in SYSTEMS[1:]},
    }


def _full_cache() -> TokenCache:
    """A cache that is filled with other texts."""
    cache, numbers = TokenCache(CACHE_BYTES), count()
    while cache.counts.size < 0.9 * CACHE_BYTES:
        texts = [str(next(numbers)) for _ in range(1000)]
        cache.tokens("other", texts, lambda missing: [bytes(bytearray(4 * FILLED_WITH_TOKENS)) for _ in missing])
    return cache
