"""The accuracy of an answer of `/v1/rank`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cerberank_training.evaluation.question_metrics import question_metrics, ranks_of


def metrics_of(answer: dict[str, Any], labels: Sequence[int]) -> dict[str, float]:
    """The expected metrics of an answer whose `results` have every candidate; `labels` are by candidate.

    Candidates that the lexical layer dropped count by its scores, and those that no stage has scored before a deadline
    as tied in the last place.
    """
    by_candidate = sorted(answer["results"], key=lambda result: int(result["index"]))
    scores = np.asarray([result["score"] or result.get("lexical_score", 0.0) for result in by_candidate])
    ranks = ranks_of(scores, np.asarray([result["stage"] for result in by_candidate]))
    return question_metrics(np.asarray(labels), ranks).expected
