"""Accuracy by the number of candidates (the depth). Each question is scored once, at its greatest depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cerberank_models.backends.contract import Backend
from cerberank_models.encoding import PairEncoder
from cerberank_models.first_stage.rank import FirstStage
from cerberank_models.windows import Windowing
from cerberank_training.data import Question
from cerberank_training.data.depths import DeepQuestion
from cerberank_training.evaluation.evaluate import AllScores, Figures, score_questions
from cerberank_training.evaluation.report import table


def score_depths(
    backend: Backend[Any],
    encoder: PairEncoder,
    questions: Sequence[DeepQuestion],
    first: FirstStage | None = None,
    *,
    windowing: Windowing | None,
) -> Iterator[list[tuple[int, Question, AllScores]]]:
    """Yield a list for each question, with (depth, question, scores) for each of its depths."""
    deepest = (deep.question for deep in questions)
    scored = score_questions(backend, encoder, deepest, first, windowing=windowing)
    for deep, (_, scores) in zip(questions, scored, strict=True):
        yield [(depth, deep.at(depth), scores.of(deep.rows(depth))) for depth in deep.depths]


def depth_markdown(figures: Mapping[int, Mapping[str, Figures]], costs: Mapping[int, Mapping[str, float]]) -> str:
    """A table with a row for each depth and ranking: the means of MAP and P@1 with standard errors."""
    header = ["candidates", "ranking", "MAP ± error", "P@1 ± error", "cost", "questions"]
    rows = [
        [
            f"{depth:,}",
            name,
            *(f"{row.mean[metric]:.1f} ± {row.error[metric] or 0.0:.1f}" for metric in ("map", "p@1")),
            f"{costs[depth][name]:.2f}",
            str(row.questions),
        ]
        for depth, variants in figures.items()
        for name, row in variants.items()
    ]
    return table(header, rows)
