from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from cerberank_training.evaluation.first_results import FirstResult, first_result_figures, sentence

RNG = np.random.default_rng(3)


def results(count: int) -> list[FirstResult]:
    """Questions whose scores are true probabilities; a quarter have no answer, and low scores."""
    rows = []
    for score in RNG.uniform(0.0, 1.0, count).round(2):
        right = bool(RNG.random() < score)
        answered = right or bool(RNG.random() < 0.5)
        rows.append(FirstResult(float(score), right=right, answered=answered, answerable=float(score)))
    return rows


def test_auroc_and_brier_score_are_scikit_learns() -> None:
    """With ties, because scores have two digits."""
    rows = results(400)
    got = first_result_figures(rows)
    scores, right = [row.score for row in rows], [row.right for row in rows]
    assert got.brier == pytest.approx(brier_score_loss(right, scores))
    assert got.auroc == pytest.approx(roc_auc_score([row.answered for row in rows], scores))
    assert got.base_brier == pytest.approx(brier_score_loss(right, [np.mean(right)] * len(rows)))


def test_the_error_of_true_probabilities_is_small_and_that_of_certainty_is_the_share_of_mistakes() -> None:
    """Four thousand questions: the standard error of a bin is .025 at most."""
    rows = results(4000)
    assert first_result_figures(rows).ece < 0.03
    sure = [FirstResult(1.0, right=row.right, answered=row.answered, answerable=1.0) for row in rows]
    assert first_result_figures(sure).ece == pytest.approx(1.0 - np.mean([row.right for row in rows]))


def test_recall_counts_questions_that_have_an_answer_and_cuts_between_different_scores() -> None:
    """Three right ones above a wrong one with the score of a fourth right one: both stand or fall together."""
    rows = [FirstResult(score, right=True, answered=True, answerable=score) for score in (0.9, 0.8, 0.7, 0.6)]
    rows += [FirstResult(0.6, right=False, answered=True, answerable=0.6)]
    rows += [FirstResult(0.1, right=False, answered=False, answerable=0.1)]
    got = first_result_figures(rows)
    assert got.recall == pytest.approx(3 / 5)
    assert got.precision_at["0.5"] == 1.0
    assert got.precision_at["1"] == pytest.approx(4 / 6)
    assert "AUROC 1.000 for the 1 of 6 questions without an answer" in sentence(got)


def test_without_both_kinds_of_questions_there_is_no_auroc() -> None:
    """The sentence leaves it out."""
    got = first_result_figures([FirstResult(0.9, right=True, answered=True, answerable=0.9)])
    assert got.auroc is None
    assert "AUROC" not in sentence(got)
