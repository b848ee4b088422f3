"""Evaluates a ranker: every exit, head and drop schedule from one pass over the candidates.

Nothing is dropped while scoring: what a schedule would have dropped follows from the exits' scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backend import Backend, Scores
from cerberank_models.drop import relative_cost, survivors
from cerberank_models.encoding import EncodedPairs, PairEncoder
from cerberank_training.data import Question, Subset, subset
from cerberank_training.metrics import METRICS, QuestionMetrics, question_metrics, ranks_of

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AllScores:
    """What every stage says about every candidate of one question."""

    stages: tuple[Scores, ...]
    heads: Scores | None
    """Shape [n, k]."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One variant on one subset; metrics in percent."""

    questions: int
    pairs: int
    mean: dict[str, float]
    error: dict[str, float]
    """Standard error of the mean."""
    pessimistic: dict[str, float]
    optimistic: dict[str, float]
    tied: int


def score_all(backend: Backend[Any], pairs: EncodedPairs) -> AllScores:
    """Run every stage over every pair."""
    state, stages, heads = backend.start(pairs), [], None
    for stage in range(len(backend.config.stages)):
        output = backend.run(state, stage)
        stages.append(output.scores)
        state, heads = output.state, output.head_scores
    return AllScores(tuple(stages), heads)


def apply_schedule(scores: AllScores, schedule: Sequence[float]) -> Ranks:
    """Ranks [n] of the candidates when each stage drops by `schedule`."""
    alive = np.arange(len(scores.stages[0]))
    reached = np.zeros(len(alive), dtype=np.int64)
    for stage, alpha in enumerate(schedule):
        alive = alive[survivors(scores.stages[stage][alive], alpha)]
        reached[alive] = stage + 1
    final = np.stack(scores.stages)[reached, np.arange(len(reached))]
    return ranks_of(reached, final)


def variants(scores: AllScores, schedules: Sequence[tuple[float, ...]]) -> dict[str, Ranks]:
    """Ranks under every way of ranking that the model offers, by name."""
    flat = np.zeros(len(scores.stages[0]), dtype=np.int64)
    ranks = {"final": ranks_of(flat, scores.stages[-1])}
    for index, exit_scores in enumerate(scores.stages[:-1]):
        ranks[f"exit {index + 1}"] = ranks_of(flat, exit_scores)
    if scores.heads is not None:
        for head in range(scores.heads.shape[1]):
            ranks[f"head {head + 1}"] = ranks_of(flat, scores.heads[:, head])
    for schedule in schedules:
        ranks[schedule_name(schedule)] = apply_schedule(scores, schedule)
    return ranks


def schedule_name(schedule: Sequence[float]) -> str:
    """As reports print it: `drop 0.3,0.3`."""
    return "drop " + ",".join(f"{alpha:g}" for alpha in schedule)


def rank_questions(
    backend: Backend[Any],
    encoder: PairEncoder,
    questions: Iterable[Question],
    schedules: Sequence[tuple[float, ...]] = (),
) -> Iterable[tuple[Question, dict[str, Ranks]]]:
    """Each question with its ranks under every variant."""
    for question in questions:
        pairs = encoder.encode(question.text, [labelled.candidate for labelled in question.candidates])
        yield question, variants(score_all(backend, pairs), schedules)


class Evaluation:
    """Collects questions one by one; holds metrics, never texts or scores of the whole set."""

    def __init__(self) -> None:
        """Start empty."""
        self._rows: list[tuple[Question, dict[str, QuestionMetrics]]] = []
        self.without_positive = 0
        """Questions that no metric is defined for; they are counted, not averaged."""

    def add(self, question: Question, ranks: Mapping[str, Ranks]) -> None:
        """Add one question with its ranks by variant."""
        labels = np.asarray(question.labels)
        if not labels.any():
            self.without_positive += 1
            return
        self._rows.append((question, {name: question_metrics(labels, value) for name, value in ranks.items()}))

    def figures(self, name: Subset = "clean") -> dict[str, Figures]:
        """Figures by variant on `clean` or `strict`; raises ValueError when the subset is empty."""
        chosen = {question.id for question in subset((question for question, _ in self._rows), name)}
        rows = [(question, metrics) for question, metrics in self._rows if question.id in chosen]
        if not rows:
            raise ValueError(f"no question is in the subset {name!r}")
        pairs = sum(len(question.candidates) for question, _ in rows)
        return {variant: _figures([metrics[variant] for _, metrics in rows], pairs=pairs) for variant in rows[0][1]}

    def per_question(self) -> list[dict[str, Any]]:
        """One record a question: id, and the expected metrics of every variant."""
        return [
            {"id": question.id, **{name: value.expected for name, value in metrics.items()}}
            for question, metrics in self._rows
        ]


def _figures(rows: Sequence[QuestionMetrics], *, pairs: int) -> Figures:
    expected = {name: np.asarray([row.expected[name] for row in rows]) for name in METRICS}
    return Figures(
        questions=len(rows),
        pairs=pairs,
        mean={name: 100.0 * float(values.mean()) for name, values in expected.items()},
        error={name: _standard_error(values) for name, values in expected.items()},
        pessimistic={name: 100.0 * float(np.mean([row.pessimistic[name] for row in rows])) for name in METRICS},
        optimistic={name: 100.0 * float(np.mean([row.optimistic[name] for row in rows])) for name in METRICS},
        tied=sum(row.tied for row in rows),
    )


def _standard_error(values: NDArray[np.float64]) -> float:
    return 100.0 * float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def markdown(figures: Mapping[str, Figures], stage_layers: Sequence[float] | None = None) -> str:
    """A table with a row a variant; the cost of a drop schedule is relative to dropping nothing."""
    lines = ["| ranking | MAP | MRR | P@1 | nDCG@10 | MAP bounds (ties) | cost | questions / pairs |", "|" + "---|" * 8]
    for name, row in figures.items():
        cost = 1.0
        if name.startswith("drop ") and stage_layers is not None:
            cost = relative_cost(stage_layers, [float(alpha) for alpha in name[5:].split(",")])
        values = " | ".join(f"{row.mean[metric]:.1f}" for metric in METRICS[:4])
        bounds = f"{row.pessimistic['map']:.1f}-{row.optimistic['map']:.1f} ({row.tied})"
        shown = f"{cost:.2f}" if name == "final" or name.startswith("drop ") else ""
        lines.append(f"| {name} | {values} | {bounds} | {shown} | {row.questions} / {row.pairs} |")
    error = next(iter(figures.values())).error["map"]
    return "\n".join([*lines, "", f"Standard error of the first row's MAP: {error:.1f}."])
