"""Chooses a drop schedule without labels, by comparison with the model's own ranking of all candidates.

The unchanged last stage scores all survivors, so that a ranking changes only by the dropped candidates. Two figures
measure the change: the share of questions whose first candidate is the same as without drops, and the share of the
first five candidates without drops that are still among the first five. They do not measure the model's accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import PairEncoder
from cerberank_models.lexical import lexical_scores
from cerberank_training.acceleration.exits import Exits, state_batch
from cerberank_training.acceleration.states import ExitInputs
from cerberank_training.data import Question
from cerberank_training.evaluation.gate import GateError
from cerberank_training.evaluation.question_metrics import ranks_of
from cerberank_training.evaluation.schedule_search import Tuning, TuningBounds, shares_text
from cerberank_training.evaluation.variants import AllScores, Ranks, Scorer, apply_policy, score_questions

DEPTH = 5
"""The number of first candidates in `overlap@5`."""
TITLES = {"top1_agreement": "top-1 agreement", f"overlap@{DEPTH}": f"overlap@{DEPTH}"}
"""The metrics of the table of schedules, with their titles."""


@dataclass(frozen=True, slots=True)
class AgainstOwnRanking:
    """A comparison with the model's ranking without drops. The mean of both figures decides; labels are not read."""

    names: tuple[str, ...] = ("agreement", "top1_agreement", f"overlap@{DEPTH}")
    needs: str = "two candidates"

    def usable(self, question: Question) -> bool:
        """True for a question with several candidates."""
        return len(question.candidates) > 1

    def values(self, question: Question, scores: AllScores, ranks: Ranks) -> Sequence[float]:
        """The agreement (0 or 1) and overlap (0..1) of `ranks` with the last stage's order; first the mean of both."""
        first, overlap = agreement_with(scores.stages[-1], ranks)
        return [(first + overlap) / 2, first, overlap]


def agreement_with(own: NDArray[np.floating], ranks: Ranks) -> tuple[float, float]:
    """Compare `ranks` [n] with the order of the scores `own` [n].

    Returns 1 if the first candidate is the same (else 0), and the share of the first five that is the same.

    >>> agreement_with(np.array([0.9, 0.1, 0.8]), np.array([1, 2, 0]))
    (0.0, 1.0)
    """
    wanted, got = (np.argsort(key, kind="stable")[:DEPTH] for key in (-own, ranks))
    return float(wanted[0] == got[0]), len(np.intersect1d(wanted, got)) / len(wanted)


def held_out_scores(
    exits: Exits,
    inputs: ExitInputs,
    questions: Sequence[Question],
    encoder: PairEncoder | None = None,
    *,
    start: int,
) -> Iterator[tuple[Question, AllScores]]:
    """The questions from `start` on with the logits of all stages, which have the order of the probabilities.

    With an `encoder`, the lexical layer scores them too.
    """
    device = next(exits.parameters()).device
    for index, question in enumerate(questions[start:], start=start):
        batch = state_batch([index], inputs).on(device)
        with torch.inference_mode():
            logits = exits(batch.states, batch.offsets).double().cpu().numpy()
        stages = (*logits.T, batch.logits.double().cpu().numpy())
        lexical = None
        if encoder is not None:
            pairs = encoder.encode(question.text, [row.candidate for row in question.candidates])
            lexical = lexical_scores(encoder, pairs)
        yield question, AllScores(stages, None, lexical)


def exits_agreement(exits: Exits, inputs: ExitInputs, questions: Sequence[Question], *, start: int) -> dict[str, float]:
    """The agreement of each exit's order with the model's own, in percent: the mean of both figures; `final`, of all.

    It is measured on the questions from `start` on.
    """
    rows = [
        [fmean(agreement_with(scores.stages[-1], ranks_of(stage))) for stage in scores.stages[:-1]]
        for _, scores in held_out_scores(exits, inputs, questions, start=start)
    ]
    by_exit = 100 * np.mean(rows, axis=0)
    return {f"exit {number}": float(each) for number, each in enumerate(by_exit, 1)} | {"final": float(by_exit.mean())}


@dataclass(frozen=True, kw_only=True, slots=True)
class FormAgreement:
    """The agreement in percent between a form that drops by the schedule and the model's own ranking."""

    questions: int
    top1: float
    overlap: float

    def __str__(self) -> str:
        """The figures in words."""
        return (
            f"dropping by the schedule, top-1 agreement {self.top1:.1f} %, overlap@{DEPTH} {self.overlap:.1f} %, "
            f"{self.questions} questions"
        )

    def check(self, form: str, least: float) -> None:
        """Raise GateError when less than `least` percent of the questions have the same first candidate."""
        if not self.top1 >= least:
            raise GateError(f"{form}: {self}; at least {least:g} % must have the same first candidate")


def measure_form(
    form: Backend[Any], encoder: PairEncoder, wanted: Sequence[tuple[Question, AllScores]], policy: DropPolicy
) -> FormAgreement:
    """Rank with `form` and `policy`, and compare the rankings with the last stage's order in `wanted`.

    Long texts are cut and not read in windows, because the scores in `wanted` are of one pair for each candidate.
    """
    scored = score_questions(
        Scorer(backend=form, encoder=encoder, windowing=None), [question for question, _ in wanted]
    )
    got = [
        agreement_with(own.stages[-1], apply_policy(scores, policy))
        for (_, scores), (_, own) in zip(scored, wanted, strict=True)
    ]
    top1, overlap = (100 * float(value) for value in np.mean(got, axis=0))
    return FormAgreement(questions=len(got), top1=top1, overlap=overlap)


def same_first_share(wanted: Sequence[tuple[Question, AllScores]], policy: DropPolicy) -> float:
    """The percentage of the questions with the same first candidate under the policy, by the scores in `wanted`."""
    first = [agreement_with(own.stages[-1], apply_policy(own, policy))[0] for _, own in wanted]
    return 100 * float(np.mean(first))


def within_gate(
    tuning: Tuning, bounds: TuningBounds, checked: Sequence[tuple[Question, AllScores]], *, least: float
) -> Tuning:
    """The tuning with the best schedule that the gate of the forms will accept on the questions `checked`.

    Raises ValueError, which names the nearest schedule, if none of those that drop a candidate is accepted.
    """
    drops = [point for point in tuning.tried if point.dropping and not bounds.excess(point)]
    for point in sorted(drops, key=bounds.order, reverse=True):
        if same_first_share(checked, point.policy) >= least:
            return replace(tuning, default=point)
    nearest = max(drops, key=lambda point: same_first_share(checked, point.policy))
    raise ValueError(
        f"none of {len(drops)} schedules within the bounds keeps the first candidate of {least:g} % of the "
        f"{len(checked)} --gate-questions; the nearest, {shares_text(nearest.policy)}, keeps "
        f"{same_first_share(checked, nearest.policy):.1f} %. Lower --min-agreement, or train the exits on more "
        "questions"
    )


def check_drops(tuning: Tuning) -> None:
    """Raise ValueError, which names other schedules, when the default drops none of the held-out candidates."""
    if tuning.default.dropping:
        return
    drops = [point for point in tuning.tried if point.dropping]
    if not drops:
        raise ValueError(
            f"none of {len(tuning.tried)} schedules drops a candidate of the held-out questions: "
            "give them more candidates, or a lower --minimum"
        )
    nearest = [min(drops, key=lambda point: point.cost), min(drops, key=lambda point: point.loss)]
    cheapest, closest = (
        f"{shares_text(point.policy)}, loses {point.loss:.2f} points of {point.metric} at a cost of {point.cost:.2f}"
        for point in nearest
    )
    raise ValueError(
        f"nothing would be dropped. The cheapest of {len(tuning.tried)} schedules, {cheapest}; "
        f"the one that loses least, {closest}. Raise --max-loss, give a --max-cost below 1, or lower "
        "--min-agreement, or train the exits on more questions"
    )
