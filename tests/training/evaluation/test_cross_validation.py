"""Cross-validation: each split once, figures over the union, records of other folds refused."""

from __future__ import annotations

import pytest

from cerberank_training.data import DataError
from cerberank_training.data.trec.folds import Split, splits
from cerberank_training.evaluation.compare import compare
from cerberank_training.evaluation.cross_validation import cross_validate, mean_metrics
from cerberank_training.evaluation.metrics import METRICS
from cerberank_training.evaluation.per_question import QuestionRecord, RankingRecord

FOLDS = (("a", "b", "c"), ("d",), ("e", "f"))


def record(name: str, value: float) -> QuestionRecord:
    ranking = RankingRecord(metrics=dict.fromkeys(METRICS, value), ranks=(0, 1))
    return QuestionRecord(id=name, candidates="same", labels=(2, 0), rankings={"final": ranking})


def test_figures_are_over_the_union_and_not_the_mean_of_the_folds() -> None:
    """Folds of 3, 1 and 2 questions with values 1, 0 and 0: every question counts the same."""
    asked: list[Split] = []

    def run(split: Split) -> dict[str, QuestionRecord]:
        asked.append(split)
        return {name: record(name, float(name in FOLDS[0])) for name in split.test}

    result = cross_validate(splits(FOLDS), run)
    assert asked == list(splits(FOLDS))
    assert list(result.union) == ["a", "b", "c", "d", "e", "f"]
    assert mean_metrics(result.union.values())["ndcg@20"] == pytest.approx(0.5)
    rows = result.markdown().splitlines()
    assert rows[2].startswith("| 1 | 3 | 100.0 |")
    assert rows[-1] == f"| union | 6 | {' | '.join(['50.0'] * len(METRICS))} |"
    assert compare(result.union, result.union).questions == 6


def test_a_question_without_a_relevant_document_is_not_in_the_means() -> None:
    """As in the subset `clean`; a fold of such questions alone has none."""
    unanswerable = record("a", 0.0).model_copy(
        update={"labels": (0, 0), "rankings": {"final": RankingRecord(metrics={}, ranks=(0, 1))}}
    )
    assert mean_metrics([unanswerable, record("b", 1.0)])["map"] == 1.0
    with pytest.raises(ValueError, match="no question"):
        mean_metrics([unanswerable])


@pytest.mark.parametrize(
    ("names", "message"), [("ad", "split 1: 1 questions are not of its fold, such as 'd'"), ("", "no question")]
)
def test_records_of_another_fold_are_refused(names: str, message: str) -> None:
    """A model that is tested on what it has trained on is an error, and so is one that is not tested."""
    with pytest.raises(DataError, match=message):
        cross_validate(splits(FOLDS), lambda _: {name: record(name, 1.0) for name in names})
