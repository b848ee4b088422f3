"""Measures over HTTP the accuracy lost by deadlines, from a tenth of a question's full time to all of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cerberank_benchmarks.clients.accuracy import average_precision
from cerberank_benchmarks.clients.load import BUSY
from cerberank_benchmarks.clients.server import Server, cerberank_server
from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_training.data import Question, read_questions, sampled
from cerberank_training.evaluation.metrics import question_metrics

SHARES = tuple(share / 10 for share in range(1, 11))
STEP_TOKENS = 1024
"""Tokens of a step. Deadlines are checked between steps; the default step, of half an article, would be too long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Answer:
    average_precision: float
    complete: bool
    refused: bool
    late_seconds: float
    tokens: int = 0


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per deadline, as a share of a question's full time, and one without. Raises DataNeededError."""
    questions = sampled(
        list(read_questions(settings.one_set("anytime"))), size=settings.questions, seed=settings.seed, name="clean"
    )
    checkpoint = settings.checkpoint or default_checkpoint()
    answers: dict[str, list[_Answer]] = {}
    speeds: list[float] = []
    with cerberank_server(checkpoint, scratch, precision=settings.precision, step_tokens=STEP_TOKENS) as server:
        for question in questions:
            full = _full_seconds(server, question, settings.rounds)
            answers.setdefault("none", []).append(_ask(server, question, None))
            speeds.append(full / max(1, answers["none"][-1].tokens))
            for share in SHARES:
                answers.setdefault(f"{share:g}", []).append(_ask(server, question, share * full))
    step = STEP_TOKENS * statistics.median(speeds)
    rows = [_row(name, answers[name], step) for name in (*(f"{share:g}" for share in SHARES), "none")]
    within = rows[:-1]
    return Report(
        name="anytime",
        text=f"{len(questions)} questions, {sum(len(q.candidates) for q in questions)} candidates, steps of "
        f"{STEP_TOKENS} tokens. The deadline is a share of the time that the same question takes without one; "
        "refused: 503 at once. A step through all "
        f"stages takes {1000 * step:.0f} ms.",
        rows=rows,
        chart=Chart(
            kind="lines",
            places=SHARES,
            series={
                "MAP, %": [float(row["MAP, %"]) for row in within],
                "complete, %": [float(row["complete, %"]) for row in within],
                "MAP without a deadline, %": [float(rows[-1]["MAP, %"])] * len(SHARES),
            },
            place_label="deadline, share of the full time",
            value_label="percent",
        ),
    )


def _row(name: str, answers: Sequence[_Answer], step_seconds: float) -> dict[str, Value]:
    return {
        "deadline": name,
        "MAP, %": 100 * float(np.mean([answer.average_precision for answer in answers])),
        "complete, %": 100 * float(np.mean([answer.complete for answer in answers])),
        "refused, %": 100 * float(np.mean([answer.refused for answer in answers])),
        "at most a step late, %": 100 * float(np.mean([answer.late_seconds <= step_seconds for answer in answers])),
        "late by, p50 ms": 1000 * float(np.percentile([answer.late_seconds for answer in answers], 50)),
        "late by, p99 ms": 1000 * float(np.percentile([answer.late_seconds for answer in answers], 99)),
    }


def _full_seconds(server: Server, question: Question, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        _ask(server, question, None)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _ask(server: Server, question: Question, deadline: float | None) -> _Answer:
    candidates = [
        {"text": each.candidate.text, "previous": each.candidate.previous, "next": each.candidate.next}
        for each in question.candidates
    ]
    body: dict[str, Any] = {"question": question.text, "candidates": candidates}
    if deadline is not None:
        body["deadline_ms"] = 1000 * deadline
    started = time.perf_counter()
    response = server.client.post("/v1/rank", json=body)
    late = 0.0 if deadline is None else max(0.0, time.perf_counter() - started - deadline)
    labels = np.asarray(question.labels)
    if response.status_code in BUSY:
        unranked = question_metrics(labels, np.zeros(len(labels), dtype=np.int64)).expected["map"]
        return _Answer(average_precision=unranked, complete=False, refused=True, late_seconds=late)
    answer = response.raise_for_status().json()
    return _Answer(
        average_precision=average_precision(answer, question.labels),
        complete=bool(answer["complete"]),
        refused=False,
        late_seconds=late,
        tokens=int(answer["usage"]["tokens"]),
    )
