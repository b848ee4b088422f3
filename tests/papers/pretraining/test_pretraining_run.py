"""The settings and the figures of a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.papers.pretraining.documents import documents, groups_of
from tests.papers.pretraining.networks import save_base
from tests.training.copies import compare_with_copies

from cerberank_models.encoding import Candidate
from cerberank_papers.pretraining.batches import Batches
from cerberank_papers.pretraining.examples import Example
from cerberank_papers.pretraining.network import LossWeights
from cerberank_papers.pretraining.pretraining_run import PretrainingConfig, dev_metrics, pretrain
from cerberank_papers.pretraining.start import build_start
from cerberank_training.learning.divergence import DivergenceError
from cerberank_training.runs.base import open_base


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    """The paper's 10,000 steps of a short run would never reach the rate; a share is taken too."""
    with pytest.raises(ValueError, match="warmup 10000 does not fit into steps 600"):
        PretrainingConfig(steps=600)
    assert PretrainingConfig(steps=600, warmup=0.1).warmup == 0.1


def test_metrics_are_those_of_the_trained_network(tmp_path: Path) -> None:
    """Accuracy, positives in front and hard negatives behind, counted from the network's own scores after training."""
    groups = groups_of(documents([[2, 4, 4, 4], [3, 4], [2, 4, 4]]), "dpc", seed=1)
    listed = [groups.group(index) for index in range(12)]
    start = build_start(open_base(str(save_base("bert", tmp_path / "base"))), LossWeights(mlm=0), seed=1)
    before = {name: value.clone() for name, value in start.network.state_dict().items()}
    config = PretrainingConfig(
        steps=4,
        examples_per_step=10,
        learning_rate=3e-2,
        warmup=1,
        max_length=62,
        evaluate_every=4,
        device="cpu",
        precision="fp32",
    )
    metrics = pretrain(start, tmp_path / "out", groups, [example for group in listed for example in group], config)
    batches = Batches(start.tokenizer, family="bert", max_length=62, masks=False, seed=1)
    right, first, hard = [], [], []
    for index, group in enumerate(listed):
        with torch.inference_mode():
            logits = start.network.eval()(**batches([(index, group)]))["ssp_logits"]
        scores = (logits[:, 1] - logits[:, 0]).tolist()
        right += [(score > 0) == (example.kind == "positive") for score, example in zip(scores, group, strict=True)]
        first.append(all(score < scores[0] for score in scores[1:]))
        hard += [score < scores[0] for score, example in zip(scores, group, strict=True) if example.kind == "hard"]
    assert any(not torch.equal(value, before[name]) for name, value in start.network.state_dict().items())
    for name, counted in (("ssp_accuracy", right), ("ssp_first", first), ("ssp_hard", hard)):
        assert metrics[name] == pytest.approx(100 * sum(counted) / len(counted)), name
    assert "mlm" not in metrics


def test_workers_need_no_fork(tmp_path: Path) -> None:
    """The maker of batches, with their masks, is copied into another process, and makes the same there."""
    groups = groups_of(documents([[2, 4, 4, 4], [3, 4], [2, 4, 4]]), "dpc", seed=1)
    start = build_start(open_base(str(save_base("bert", tmp_path / "base"))), LossWeights(), seed=1)
    config = PretrainingConfig(
        steps=4, examples_per_step=10, warmup=1, max_length=62, evaluate_every=4, device="cpu", precision="fp32"
    )
    compare_with_copies(lambda: pretrain(start, tmp_path / "out", groups, groups.group(0), config))


def test_a_diverged_run_ends_before_its_weights_are_saved(tmp_path: Path) -> None:
    """The losses of an evaluation tell that the step before it has ruined the weights."""
    groups = groups_of(documents([[2, 4, 4, 4], [3, 4], [2, 4, 4]]), "dpc", seed=1)
    start = build_start(open_base(str(save_base("bert", tmp_path / "base"))), LossWeights(mlm=0), seed=1)
    config = PretrainingConfig(
        steps=4,
        examples_per_step=10,
        learning_rate=1e38,
        warmup=1,
        max_length=62,
        evaluate_every=2,
        device="cpu",
        precision="fp32",
    )
    with pytest.raises(DivergenceError, match=r"the loss is (nan|inf) in step 2, "):
        pretrain(start, tmp_path / "out", groups, groups.group(0), config)
    assert not list((tmp_path / "out" / "run").glob("checkpoint-*"))


def test_equal_scores_count_as_the_expectation_over_their_order() -> None:
    """A positive level with one hard negative, one level with all, and one below another; fifteen scores by hand."""
    dev = [
        Example(a="a", b=Candidate(text="b"), kind=kind) for kind in ("positive", "hard", "hard", "easy", "easy")
    ] * 3
    scores = np.asarray([[2, 2, 1, 0, 0], [1, 1, 1, 1, 1], [0, 1, -1, -1, -1]], dtype=np.float32)
    logits = np.stack([np.zeros(15, np.float32), scores.reshape(-1)], axis=1)
    metrics = dev_metrics(dev)(SimpleNamespace(predictions=(logits, np.zeros(15, np.float32))))
    assert metrics["ssp_first"] == pytest.approx(100 * (1 / 2 + 1 / 5 + 0) / 3)
    assert metrics["ssp_hard"] == pytest.approx(100 * (1 / 2 + 1 + 1 / 2 + 1 / 2 + 0 + 1) / 6)


def test_without_hard_negatives_they_have_no_figure() -> None:
    """Documents of one paragraph give none; 0 % would say that the head is worse than chance."""
    dev = [Example(a="a", b=Candidate(text="b"), kind="easy" if number else "positive") for number in range(5)]
    logits = np.asarray([[0, 1], *[[0, 0]] * 4], np.float32)
    metrics = dev_metrics(dev)(SimpleNamespace(predictions=(logits, np.zeros(5, np.float32))))
    assert metrics["ssp_first"] == 100
    assert "ssp_hard" not in metrics
