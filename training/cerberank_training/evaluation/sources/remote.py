"""Evaluates the answers of a running service, which are what clients receive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import httpx
import numpy as np

from cerberank_training.data import Question
from cerberank_training.evaluation.evaluate import Ranks
from cerberank_training.evaluation.first_results import FirstResult
from cerberank_training.evaluation.metrics import ranks_of


def rank_remotely(
    url: str,
    questions: Iterable[Question],
    *,
    drop_ratio: tuple[float, ...] | None = None,
    windows: str | None = None,
) -> Iterator[tuple[Question, dict[str, Ranks], FirstResult]]:
    """Yield each question with its ranks from `POST /v1/rank`: by the order of the answer, and by each head's scores.

    The first result has the score of the answer.

    Raises httpx.HTTPStatusError when the service rejects a question.
    """
    with httpx.Client(base_url=url, timeout=300.0) as client:
        for question in questions:
            yield question, *_rank(client, question, drop_ratio, windows)


def _rank(
    client: httpx.Client, question: Question, drop_ratio: tuple[float, ...] | None, windows: str | None
) -> tuple[dict[str, Ranks], FirstResult]:
    candidates = [
        {"text": c.candidate.text, "previous": c.candidate.previous, "next": c.candidate.next}
        for c in question.candidates
    ]
    body = {"question": question.text, "candidates": candidates, "return_heads": True}
    if windows is not None:
        body["windows"] = windows
    if drop_ratio is not None:
        body["drop_ratio"] = list(drop_ratio)
    answer = client.post("/v1/rank", json=body).raise_for_status().json()
    results = answer["results"]
    by_candidate = sorted(results, key=lambda result: result["index"])
    stages = np.asarray([result["stage"] for result in by_candidate])
    # Calibrated scores of two candidates may be equal although the network's scores differ.
    scores = [result.get("raw_score", result["score"]) for result in by_candidate]
    ranks = {"final": ranks_of(stages, np.asarray(scores))}
    heads = [result.get("heads") for result in by_candidate]
    if all(heads):
        for head, scores in enumerate(np.asarray(heads, dtype=np.float64).T):
            ranks[f"head {head + 1}"] = ranks_of(np.zeros(len(scores), dtype=np.int64), scores)
    best = results[0]
    first = FirstResult(
        best["score"],
        right=question.labels[best["index"]] > 0,
        answered=any(question.labels),
        answerable=best["score"] if answer.get("answerable") is None else answer["answerable"],
    )
    return ranks, first
