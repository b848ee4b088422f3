from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tests.tiny import random_pairs

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate, EncodedPairs
from cerberank_models.rank_pairs import NonFiniteScoreError, rank_pairs
from cerberank_models.windows import Windowing
from cerberank_training.data import LabelledCandidate, Question, read_questions
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.question_metrics import ranks_of
from cerberank_training.evaluation.report import markdown
from cerberank_training.evaluation.variants import (
    AllScores,
    Scorer,
    apply_policy,
    rank_questions,
    score_all,
    score_questions,
    variant_costs,
)


def question(labels: tuple[int, ...], identifier: str = "q") -> Question:
    candidates = tuple(LabelledCandidate(Candidate(text=f"a {i}"), label) for i, label in enumerate(labels))
    return Question(id=identifier, text="how tall ?", candidates=candidates)


def test_a_schedule_applied_afterwards_is_the_one_applied_on_the_way(tiny_checkpoint: Path) -> None:
    """Ranks from all scores equal those of really dropping, for several schedules."""
    backend = open_backend(read_checkpoint(tiny_checkpoint), precision="fp32")
    check_schedules(backend, random_pairs([9] * 17))


@pytest.mark.parametrize("combine", ["best", "mean"])
def test_long_texts_are_ranked_by_their_windows(tiny_checkpoint: Path, combine: Literal["best", "mean"]) -> None:
    """Every schedule, and the heads, as a ranking folds them after each stage."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    backend, rng = open_backend(checkpoint, precision="fp32"), np.random.default_rng(3)
    texts = [" ".join(rng.choice(list("abcdefgh"), size)) for size in (3, 300, 5, 200, 90, 400, 7, 8, 9)]
    candidates = [Candidate(text=text) for text in texts]
    pairs = checkpoint.encoder().encode("how tall ?", candidates, windowing=Windowing(combine=combine))
    assert len(pairs) > pairs.candidates
    scores = check_schedules(backend, pairs)
    whole = rank_pairs(backend, pairs, RatioSchedule((0.0, 0.0)))
    assert scores.heads is not None
    assert np.array_equal(scores.heads, whole.heads)
    assert np.array_equal(scores.stages[-1], whole.scores)
    assert (scores.in_windows, scores.truncated) == (int((np.diff(pairs.windows.offsets) > 1).sum()), 0)


def check_schedules(backend: Backend[Any], pairs: EncodedPairs) -> AllScores:
    """Ranks from all scores equal those of really dropping; returns the scores."""
    scores = score_all(backend, pairs)
    for ratios in ((0.0, 0.0), (0.3, 0.3), (0.5, 0.1), (0.9, 0.9)):
        policy = RatioSchedule(ratios)
        ranking = rank_pairs(backend, pairs, policy)
        assert apply_policy(scores, policy).tolist() == ranks_of(ranking.scores, ranking.stages).tolist()
    return scores


def test_every_exit_head_and_schedule_gets_its_figures(tiny_checkpoint: Path) -> None:
    """One pass reports them all, with questions and pairs."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    evaluation = Evaluation()
    scorer, policy = Scorer.open(checkpoint, kind="onnx", precision="fp32"), RatioSchedule((0.3, 0.3))
    for item, ranks in rank_questions(scorer, [question((0, 1, 0))], [policy]):
        evaluation.add(item, ranks)
    figures = evaluation.figures()
    assert list(figures) == ["final", "exit 1", "exit 2", "head 1", "head 2", "head 3", "drop 0.3,0.3"]
    assert (figures["final"].questions, figures["final"].pairs) == (1, 3)
    costs = variant_costs(checkpoint.config, [policy], [100])
    assert list(costs) == list(figures)
    assert costs["exit 2"] == pytest.approx(2 / 3.5)
    assert costs["drop 0.3,0.3"] == pytest.approx((1 + 0.7 + 0.49 * 1.5) / 3.5)
    assert "| drop 0.3,0.3 |" in markdown(figures, costs)
    most = RatioSchedule((0.3, 0.3), minimum=100)
    assert variant_costs(checkpoint.config, [most], [5, 100, 5])["drop 0.3,0.3 (at least 100)"] == 1.0


def test_a_ranking_that_some_questions_lack_has_no_figures() -> None:
    """A variant that a service does not report for every question is left out of the figures."""
    evaluation = Evaluation()
    order = np.array([0, 1])
    evaluation.add(question((1, 0), "whole"), {"final": order, "head 1": order})
    evaluation.add(question((1, 0), "dropped"), {"final": order})
    assert list(evaluation.figures()) == ["final"]


def test_questions_without_a_positive_are_counted_not_averaged() -> None:
    """Strict leaves out all-positive ones too; raw counts all, 0 where there is nothing to find."""
    evaluation = Evaluation()
    for index, labels in enumerate([(1, 0), (0, 0), (1, 1)]):
        evaluation.add(question(labels, str(index)), {"final": np.array([1, 0])})
    assert evaluation.without_positive == 1
    assert evaluation.figures("clean")["final"].questions == 2
    assert evaluation.figures("clean")["final"].mean["map"] == pytest.approx(75.0)
    assert evaluation.figures("strict")["final"].mean["map"] == pytest.approx(50.0)
    assert evaluation.figures("raw")["final"].mean["map"] == pytest.approx(50.0)
    assert evaluation.figures("raw")["final"].questions == 3
    assert list(evaluation.all_figures()) == ["raw", "clean", "strict"]


def test_a_subset_without_questions_has_no_figures() -> None:
    """It is an error to ask for, and absent from all of them."""
    evaluation = Evaluation()
    evaluation.add(question((0, 0)), {"final": np.array([0, 1])})
    assert list(evaluation.all_figures()) == ["raw"]
    with pytest.raises(ValueError, match="no question is in the subset 'clean'"):
        evaluation.figures("clean")


def test_a_network_that_gives_nan_is_an_error_that_names_the_question(tiny_checkpoint: Path) -> None:
    """Weights that overflow raise an error instead of giving a ranking."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    ranker = load_ranker(checkpoint)
    ranker.state_dict()["embeddings.tokens.weight"].fill_(float("nan"))
    scorer = Scorer(backend=TorchBackend(ranker), encoder=checkpoint.encoder())
    with pytest.raises(NonFiniteScoreError, match="question 'q7': stage 0"):
        list(score_questions(scorer, [question((0, 1), "q7")]))


def test_wikiqas_baselines(shared_data: Path) -> None:
    """Document order gives 64.2/64.3/46.1; tied scores give the expectation and do not leak that order."""
    evaluation = Evaluation()
    for item in read_questions(f"wikiqa:{shared_data / 'wikiqa' / 'WikiQA-test.tsv.gz'}"):
        count = len(item.candidates)
        evaluation.add(item, {"order": np.arange(count), "tied": np.zeros(count, dtype=np.int64)})
    figures = evaluation.figures("clean")
    order = figures["order"].mean
    assert [round(order[name], 1) for name in ("map", "mrr", "p@1")] == [64.2, 64.3, 46.1]
    assert round(figures["tied"].mean["map"], 1) == 39.9
    assert figures["tied"].optimistic["map"] == pytest.approx(100.0)
