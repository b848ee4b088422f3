"""The gate of an export: on dev questions, an exported form must rank like its network.

Besides the differences of scores it bounds the changes of first candidates and of MAP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cerberank_training.data import Question
from cerberank_training.evaluation.question_metrics import expected_metrics, ranks_of
from cerberank_training.evaluation.variants import Scorer


class GateError(RuntimeError):
    """The rankings of a form differ too much; nothing was written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GateBounds:
    """The largest allowed differences between a form and its network."""

    agreement: float = 97.0
    """The least percentage of questions with the same first candidate."""
    map_change: float = 0.5
    """The largest change of MAP in points, up or down."""
    difference: float = 0.15
    """The largest 99th percentile of the differences of scores (probabilities)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parity:
    """The measured differences between a form and its network on a number of `questions`."""

    questions: int
    agreement: float
    map_change: float
    difference: float

    def check(self, form: str, bounds: GateBounds) -> None:
        """Raise GateError, which names every exceeded bound."""
        broken = []
        if not self.agreement >= bounds.agreement:
            broken.append(f"top-1 agreement {self.agreement:.1f} % (at least {bounds.agreement:g})")
        if not abs(self.map_change) <= bounds.map_change:
            broken.append(f"MAP {self.map_change:+.2f} (at most {bounds.map_change:g})")
        if not self.difference <= bounds.difference:
            broken.append(f"score difference {self.difference:.3f} (at most {bounds.difference:g})")
        if broken:
            raise GateError(f"{form} does not rank like fp32 on {self.questions} questions: {'; '.join(broken)}")


def measure_parity(form: Scorer, reference: Scorer, questions: Sequence[Question]) -> Parity:
    """Compare the final scores of two forms of a network. Raises ValueError if no question has a positive."""
    questions = [question for question in questions if question.answerable]
    if not questions:
        raise ValueError("the gate needs questions with a positive candidate")
    same, maps, differences = [], [], []
    for question in questions:
        ours, theirs = (scorer.scores(question).stages[-1] for scorer in (form, reference))
        same.append(int(ours.argmax()) == int(theirs.argmax()))
        differences.append(np.abs(ours - theirs))
        labels = np.asarray(question.labels)
        maps.append([expected_metrics(labels, ranks_of(each), question.missed)["map"] for each in (ours, theirs)])
    ours_map, theirs_map = np.mean(maps, axis=0)
    return Parity(
        questions=len(questions),
        agreement=100 * float(np.mean(same)),
        map_change=100 * float(ours_map - theirs_map),
        difference=float(np.quantile(np.concatenate(differences), 0.99)),
    )
