"""Compares several questions in one request with the same questions in requests of their own, over HTTP and in Python.

All calls are those of the public clients, `Client`, `AsyncClient` and `Ranker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from cerberank import AsyncClient, Client, Ranker

from cerberank_benchmarks.clients.server import cerberank_server
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_benchmarks.workload import Workload
from cerberank_models.progress import progress

QUESTIONS = 32
"""Number of questions."""
WAYS = ("one after the other", "at once", "batch", "Ranker.rank", "Ranker.rank_batch")


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and way; the token cache is off, so that every round tokenises anew.

    The ways take turns in a round, and a ratio is the median of the rounds' ratios, so that the load of the machine
    affects them alike.
    """
    workload, rows = Workload(settings), list[dict[str, Value]]()
    with cerberank_server(settings.checkpoint, scratch, {"token_cache_bytes": 0}) as server:
        address = str(server.client.base_url)
        with Client(address, timeout=600.0) as client:
            ranker = Ranker.load(settings.checkpoint)
            for count in settings.candidates:
                tasks = [workload.task(count, seed=seed) for seed in range(QUESTIONS)]
                questions = [{"question": task.question, "candidates": list(task.texts)} for task in tasks]
                ways: dict[str, Callable[[], object]] = {
                    WAYS[0]: partial(_one_by_one, client, questions),
                    WAYS[1]: partial(_run_at_once, address, questions),
                    WAYS[2]: partial(client.rank_batch, questions),
                    WAYS[3]: partial(_one_by_one, ranker, questions),
                    WAYS[4]: partial(ranker.rank_batch, questions),
                }
                for way in ways.values():
                    way()
                seconds: dict[str, list[float]] = {name: [] for name in ways}
                for _ in progress(range(settings.rounds), desc=f"{count} candidates"):
                    for name, way in ways.items():
                        began = perf_counter()
                        way()
                        seconds[name].append(perf_counter() - began)
                rows += [_row(count, name, seconds) for name in ways]
    return Report(
        name="batch",
        text=f"Median seconds of {QUESTIONS} questions, and the median of each round's ratio to single requests one "
        "after the other, to single requests at once, and in this process to single calls.",
        rows=rows,
        chart=Chart(
            places=settings.candidates,
            series={way: [float(row["seconds"]) for row in rows if row["way"] == way] for way in WAYS},
            place_label="candidates",
            value_label="seconds",
        ),
    )


def _row(count: int, name: str, seconds: dict[str, list[float]]) -> dict[str, Value]:
    def ratio(to: str) -> float:
        return median(own / other for own, other in zip(seconds[name], seconds[to], strict=True))

    local = name.startswith("Ranker")
    return {
        "candidates": count,
        "way": name,
        "seconds": median(seconds[name]),
        "to one after the other": ratio(WAYS[3 if local else 0]),
        "to at once": "" if local else ratio(WAYS[1]),
    }


def _one_by_one(ranks: Client | Ranker, questions: list[dict[str, Any]]) -> None:
    for question in questions:
        ranks.rank(**question)


async def _at_once(address: str, questions: list[dict[str, Any]]) -> None:
    async with AsyncClient(address, timeout=600.0) as client:
        await asyncio.gather(*(client.rank(**each) for each in questions))


def _run_at_once(address: str, questions: list[dict[str, Any]]) -> None:
    asyncio.run(_at_once(address, questions))
