from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tiny import random_pairs

from cerberank_models.backends import open_backend
from cerberank_models.checkpoint import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs
from cerberank_training.data import LabelledCandidate, Question, read_questions
from cerberank_training.evaluate import Evaluation, apply_schedule, markdown, rank_questions, score_all
from cerberank_training.metrics import ranks_of


def question(labels: tuple[int, ...], identifier: str = "q") -> Question:
    candidates = tuple(LabelledCandidate(Candidate(text=f"a {i}"), label) for i, label in enumerate(labels))
    return Question(id=identifier, text="how tall ?", candidates=candidates)


def test_a_schedule_applied_afterwards_is_the_one_applied_on_the_way(tiny_checkpoint: Path) -> None:
    """Ranks from all scores equal those of really dropping, for several schedules."""
    backend, pairs = open_backend(read_checkpoint(tiny_checkpoint), precision="fp32"), random_pairs([9] * 17)
    scores = score_all(backend, pairs)
    for schedule in ((0.0, 0.0), (0.3, 0.3), (0.5, 0.1), (0.9, 0.9)):
        ranking = rank_pairs(backend, pairs, schedule=schedule)
        assert apply_schedule(scores, schedule).tolist() == ranks_of(ranking.stages, ranking.scores).tolist()


def test_every_exit_head_and_schedule_gets_its_figures(tiny_checkpoint: Path) -> None:
    """One pass reports them all, with questions and pairs."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    evaluation = Evaluation()
    backend = open_backend(checkpoint, precision="fp32")
    for item, ranks in rank_questions(backend, checkpoint.encoder(), [question((0, 1, 0))], [(0.3, 0.3)]):
        evaluation.add(item, ranks)
    figures = evaluation.figures()
    assert list(figures) == ["final", "exit 1", "exit 2", "head 1", "head 2", "head 3", "drop 0.3,0.3"]
    assert (figures["final"].questions, figures["final"].pairs) == (1, 3)
    assert "| drop 0.3,0.3 |" in markdown(figures, [1, 1, 1.5])


def test_questions_without_a_positive_are_counted_not_averaged() -> None:
    """And strict leaves out all-positive ones."""
    evaluation = Evaluation()
    for index, labels in enumerate([(1, 0), (0, 0), (1, 1)]):
        evaluation.add(question(labels, str(index)), {"final": np.array([1, 0])})
    assert evaluation.without_positive == 1
    assert evaluation.figures("clean")["final"].questions == 2
    assert evaluation.figures("clean")["final"].mean["map"] == pytest.approx(75.0)
    assert evaluation.figures("strict")["final"].mean["map"] == pytest.approx(50.0)


def test_wikiqas_baselines(shared_data: Path) -> None:
    """Document order gives 64.2/64.3/46.1; all-tied scores give the expectation, not that leak."""
    evaluation = Evaluation()
    for item in read_questions(f"wikiqa:{shared_data / 'wikiqa' / 'WikiQA-test.tsv.gz'}"):
        count = len(item.candidates)
        evaluation.add(item, {"order": np.arange(count), "tied": np.zeros(count, dtype=np.int64)})
    figures = evaluation.figures("clean")
    order = figures["order"].mean
    assert [round(order[name], 1) for name in ("map", "mrr", "p@1")] == [64.2, 64.3, 46.1]
    assert round(figures["tied"].mean["map"], 1) == 39.9
    assert figures["tied"].optimistic["map"] == pytest.approx(100.0)
