"""Cross-validation: a model for each split of the queries, and figures over the union of the test folds (TRMD).

In: splits, and a function that trains, chooses and tests a model on one. Out: the records of every test question, each
by the model that has not seen it, as one set that `compare` takes, and its means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cerberank_training.data import DataError
from cerberank_training.data.trec.folds import Split
from cerberank_training.evaluation.metrics import METRICS, TITLES
from cerberank_training.evaluation.per_question import QuestionRecord, Records
from cerberank_training.evaluation.report import table


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """The records of each split's test questions."""

    folds: tuple[Records, ...]

    @property
    def union(self) -> Records:
        """The records of all test questions."""
        return {name: record for fold in self.folds for name, record in fold.items()}

    def markdown(self, ranking: str = "final") -> str:
        """A table in percent with a row a fold, and one for the union, where every question counts the same."""
        rows = [(str(number), fold) for number, fold in enumerate(self.folds, start=1)]
        body = []
        for name, records in (*rows, ("union", self.union)):
            means = mean_metrics(records.values(), ranking=ranking)
            body.append([name, str(len(records)), *(f"{100 * means[metric]:.1f}" for metric in METRICS)])
        return table(["test fold", "questions", *TITLES.values()], body)


def cross_validate(splits: Sequence[Split], run: Callable[[Split], Records]) -> CrossValidation:
    """Run every split in turn. Raises DataError when a split gives no record, or one that is not of its test fold."""
    folds = []
    for number, split in enumerate(splits, start=1):
        records = run(split)
        if foreign := sorted(set(records) - set(split.test)):
            raise DataError(f"split {number}: {len(foreign)} questions are not of its fold, such as {foreign[0]!r}")
        if not records:
            raise DataError(f"split {number}: no question of its test fold has a record")
        folds.append(records)
    return CrossValidation(tuple(folds))


def mean_metrics(records: Iterable[QuestionRecord], *, ranking: str = "final") -> dict[str, float]:
    """Each metric's mean in 0..1 over the questions that have a relevant document; raises ValueError without any."""
    rows = [record.rankings[ranking].metrics for record in records if record.answerable]
    if not rows:
        raise ValueError("no question has a relevant document")
    return {name: float(np.mean([row[name] for row in rows])) for name in METRICS}
