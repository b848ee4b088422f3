"""Measures over HTTP the time and the accuracy of a first stage, with vectors that are stored, cached, or computed.

Every question has the same number of distinct candidates: its own, then candidates of other documents with label 0.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from cerberank.cli import main as program

from cerberank_benchmarks.clients.accuracy import metrics_of
from cerberank_benchmarks.clients.server import ServerSettings, cerberank_server
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings, DataNeededError
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.progress import progress
from cerberank_training.data import Question, read_questions, sampled
from cerberank_training.data.deep_questions import Documents

EVERY, DEFAULT = "bundled, drop_ratio 0", "bundled, its schedule"
STORED, CACHED, COMPUTED = "stored vectors", "cached vectors", "computed vectors"
VECTORS = (STORED, CACHED, COMPUTED)
CACHE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Joined:
    """A question with distinct candidates and their labels."""

    text: str
    candidates: tuple[str, ...]
    labels: tuple[int, ...]

    def body(self, **fields: object) -> dict[str, object]:
        """The body of a request, with further `fields`."""
        return {"question": self.text, "candidates": list(self.candidates), **fields}


@dataclass(frozen=True, slots=True)
class System:
    """A server, and the further fields of its requests."""

    client: httpx.Client
    fields: dict[str, object]

    def ask(self, question: Joined) -> tuple[float, dict[str, Any]]:
        """The seconds of the whole request, and the answer."""
        body = question.body(**self.fields)
        started = time.perf_counter()
        response = self.client.post("/v1/rank", json=body)
        seconds = time.perf_counter() - started
        answer: dict[str, Any] = response.raise_for_status().json()
        return seconds, answer


def joined(
    questions: Sequence[Question], size: int, seed: int, *, every: Sequence[Question] | None = None
) -> Iterator[Joined]:
    """Each question with `size` candidates; those that it lacks are taken from `every` (by default, `questions`).

    Raises DataNeededError if there are too few texts.
    """
    documents = Documents(questions if every is None else every)
    for question in questions:
        distinct = tuple({row.candidate.text: row for row in question.candidates}.values())
        deep = documents.deepen(replace(question, candidates=distinct), (size,), seed)
        if deep is None:
            raise DataNeededError(f"{len(questions)} questions have too few texts for {size} candidates")
        rows = deep.question.candidates
        yield Joined(question.text, tuple(row.candidate.text for row in rows), tuple(row.label for row in rows))


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per number of candidates and system. Raises DataNeededError, CheckpointError without a first stage."""
    data = settings.one_set("first-stage")
    if settings.checkpoint is None or read_checkpoint(settings.checkpoint).config.first_stage is None:
        raise CheckpointError("first-stage needs a checkpoint with a first stage: --checkpoint FOLDER")
    questions = sampled(list(read_questions(data)), size=settings.questions, seed=settings.seed, name="clean")
    texts = (each.candidate.text for question in questions for each in question.candidates)
    stored = stored_vectors(settings, texts, scratch)
    rows: list[dict[str, Value]] = []
    with ExitStack() as servers:

        def serve(checkpoint: Path, name: str, *, cache: int, vectors: Path | None = None) -> httpx.Client:
            options: ServerSettings = {
                "precision": settings.precision,
                "vector_cache_bytes": cache,
                "vectors": None if vectors is None else str(vectors),
            }
            return servers.enter_context(cerberank_server(checkpoint, scratch / name, options)).client

        # One server for both schedules, and one for each way in which vectors are got.
        plain, first = serve(default_checkpoint(), "plain", cache=CACHE_BYTES), settings.checkpoint
        systems = {
            EVERY: System(plain, {"drop_ratio": 0}),
            DEFAULT: System(plain, {}),
            STORED: System(serve(first, "stored", cache=0, vectors=stored), {}),
            CACHED: System(serve(first, "cached", cache=CACHE_BYTES), {}),
            COMPUTED: System(serve(first, "computed", cache=0), {}),
        }
        for count in settings.candidates:
            rows += _measured(systems, list(joined(questions, count, settings.seed)), count)
    return Report(
        name="first-stage",
        text=f"{len(questions)} questions one by one over HTTP, {settings.precision}, each asked of every system in "
        "turn; medians of the whole request and of its ratios to the others' time for the same question. MAP is of "
        "the answers. Cached vectors are those of an earlier request, the question's own included.",
        rows=rows,
        chart=Chart(
            places=list(settings.candidates),
            series={
                name: [float(row["p50 ms"]) for row in rows if row["system"] == name] for name in (DEFAULT, *VECTORS)
            },
            place_label="candidates",
            value_label="ms",
        ),
        problems=[str(row["problem"]) for row in rows if row["problem"]],
    )


def stored_vectors(settings: BenchmarkSettings, texts: Iterable[str], scratch: Path) -> Path:
    """Store the vectors of the texts with `cerberank data embed`; returns the folder."""
    lines, out = scratch / "texts.jsonl", scratch / "vectors"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in dict.fromkeys(texts)), encoding="utf-8")
    if program(["data", "embed", str(settings.checkpoint), str(lines), str(out), "--precision", settings.precision]):
        raise CheckpointError(f"{settings.checkpoint}: its vectors could not be computed")
    return out


def _measured(systems: dict[str, System], questions: Sequence[Joined], count: int) -> list[dict[str, Value]]:
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    precision: dict[str, list[float]] = {name: [] for name in systems}
    stages: dict[str, list[int]] = {name: [] for name in systems}
    for system in systems.values():
        system.ask(questions[0])  # warm-up
    for question in progress(questions, desc=f"{count} candidates"):
        systems[CACHED].ask(question)
        for name, system in systems.items():
            took, answer = system.ask(question)
            seconds[name].append(took)
            precision[name].append(metrics_of(answer, question.labels)["map"])
            stages[name].append(sum(result["stage"] > 0 for result in answer["results"]))
    return [
        {
            "candidates": count,
            "system": name,
            "p50 ms": 1000 * statistics.median(seconds[name]),
            "to drop 0": _ratio(seconds[name], seconds[EVERY]),
            "to its schedule": _ratio(seconds[name], seconds[DEFAULT]),
            "beyond stage 0": statistics.median(stages[name]),
            "MAP, %": 100 * float(np.mean(precision[name])),
            "problem": "" if all(np.isfinite(precision[name])) else f"{name}: an answer has no average precision",
        }
        for name in systems
    ]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))
