"""Pairwise runs give the same weights in one process or two, leave their teachers alone, and learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.text_rankers import JOINT_TWIN, MONO, TR_COLBERT, TR_TWIN, TWIN, text_ranker
from tests.tiny import bert_tokenizer
from tests.training.letters import questions

from cerberank_models.network.text_ranker import TextRanker
from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.pairwise_job import PairwiseBatch, pairwise_learner
from cerberank_papers.pairwise.settings import PairwiseConfig, PairwiseObjective, TripleSampling
from cerberank_papers.pairwise.teachers import FrozenTeacher, Teachers
from cerberank_papers.pairwise.triple_sampling import Triple, TripleSampler
from cerberank_training.evaluation.dev_figures import dev_figures
from cerberank_training.evaluation.sources.text_ranker import text_ranks
from cerberank_training.runs.loop import Loop

CONFIG = PairwiseConfig(
    steps=6,
    examples_per_step=4,
    learning_rate=1e-3,
    fresh_learning_rate=1e-3,
    weight_decay=0.0,
    precision="fp32",
    evaluate_every=3,
    save_every=2,
)


def teachers(bi: dict[str, Any] = TWIN) -> Teachers:
    return Teachers(
        mono=FrozenTeacher("mono", text_ranker(MONO, seed=1, dropout=0.1), bert_tokenizer()),
        bi=FrozenTeacher("bi", text_ranker(bi, seed=2, dropout=0.1), bert_tokenizer()),
    )


def run(
    folder: Path,
    ranker: TextRanker,
    *,
    config: PairwiseConfig = CONFIG,
    objective: PairwiseObjective = PairwiseObjective(),  # noqa: B008 - frozen
    taught: Teachers = Teachers(),  # noqa: B008 - frozen
) -> Loop[TextRanker, Triple, PairwiseBatch]:
    triples = TripleSampler(questions(), (), TripleSampling(own_share=1.0), seed=config.seed)
    return Loop(
        folder, pairwise_learner(ranker, bert_tokenizer(), triples, config, objective=objective, teachers=taught)
    )


def test_training_a_student_changes_no_teacher(tmp_path: Path) -> None:
    """After steps in which the student was in training mode, teachers are in evaluation mode, without gradients, as
    they were; the student's module tree and its state hold nothing of them.
    """
    taught, student = teachers(), text_ranker(TR_TWIN, dropout=0.1)
    frozen = [teacher for teacher in (taught.mono, taught.bi) if teacher is not None]
    before = [{name: value.clone() for name, value in each.ranker.state_dict().items()} for each in frozen]
    names, modules = set(student.state_dict()), set(student.modules())
    run(tmp_path, student, taught=taught).train(lambda ranker: 1.0)
    student.train()
    for each, weights in zip(frozen, before, strict=True):
        assert not any(module.training for module in each.ranker.modules())
        assert all(parameter.grad is None for parameter in each.ranker.parameters())
        assert all(torch.equal(value, weights[name]) for name, value in each.ranker.state_dict().items())
    assert set(student.state_dict()) == names
    assert set(student.modules()) == modules


@pytest.mark.parametrize("shape", [MONO, TR_COLBERT, JOINT_TWIN], ids=["mono", "colbert", "joint-twin"])
def test_rankers_overfit_five_questions(shape: dict[str, Any], tmp_path: Path) -> None:
    """From random weights the loss falls to a fifth and every question is answered right."""
    config = replace(CONFIG, steps=80, learning_rate=3e-3, fresh_learning_rate=3e-3, evaluate_every=80)
    config = replace(config, examples_per_step=8, save_every=80)
    ranker = text_ranker(shape)
    best = run(tmp_path, ranker, config=config).train(
        dev_figures(text_ranks(TextEncoder(bert_tokenizer(), ranker.config)), questions(), "p@1")
    )
    losses = losses_of(tmp_path)
    assert sum(losses[-10:]) < 0.2 * sum(losses[:10])
    assert best == 100.0


def losses_of(folder: Path, name: str = "loss") -> list[float]:
    records = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [record[name] for record in records if name in record]


def test_bf16_computes_the_same_losses(tmp_path: Path) -> None:
    """The first step's losses, teachers' forward pass in fp32, lie within 5 % of those of fp32."""
    for precision in ("fp32", "bf16"):
        config = replace(CONFIG, steps=1, precision=precision)
        run(tmp_path / precision, text_ranker(TR_TWIN), config=config, taught=teachers()).train(lambda ranker: 1.0)
    exact, rounded = losses_of(tmp_path / "fp32"), losses_of(tmp_path / "bf16")
    assert rounded == pytest.approx(exact, rel=0.05)
    assert rounded != exact


def train_alike(folder: Path) -> None:
    """Called in one process, and in each of two, which stay in their group."""
    config = replace(CONFIG, steps=4, evaluate_every=4, dropout=0.0)
    run(folder, text_ranker(TR_TWIN), config=config, taught=teachers()).train(lambda ranker: 1.0)


@pytest.mark.slow
def test_two_processes_train_to_the_weights_of_one(tmp_path: Path, two_processes: Path) -> None:
    """gloo, both teachers: weights differ by less than 1e-5 in the mean after four steps of 1e-3.

    Not in the maximum, because Adam blows a weight up whose gradient is rounding alone.
    """
    train_alike(tmp_path / "one")
    one, two = (
        torch.load(path / "best.pt", weights_only=True) for path in (tmp_path / "one", two_processes / "pairwise")
    )
    start = text_ranker(TR_TWIN).state_dict()
    assert any(not torch.equal(start[name], value) for name, value in one.items())
    for name, value in one.items():
        if not name.endswith(".key.bias"):  # attention does not change with it: its gradient is rounding alone
            assert (value - two[name]).abs().mean() < 1e-5, name
