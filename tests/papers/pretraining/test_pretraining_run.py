"""The settings and the figures of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.papers.pretraining.documents import documents, groups_of
from tests.papers.pretraining.networks import save_base

from cerberank_models.encoding import Candidate
from cerberank_papers.pretraining.batches import Batches
from cerberank_papers.pretraining.examples import Example
from cerberank_papers.pretraining.pretraining_job import (
    Choice,
    DevExamples,
    PretrainingConfig,
    batches_of,
    dev_metrics,
    pretraining_learner,
)
from cerberank_papers.pretraining.settings import LossWeights
from cerberank_papers.pretraining.start import Start, build_start
from cerberank_training.runs.base import open_base
from cerberank_training.runs.loop import Loop
from cerberank_training.runs.tracking.log_file import read_log


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    """The paper's 10,000 steps of a short run would never reach the rate; a share is taken too."""
    with pytest.raises(ValueError, match="warmup 10000 does not fit into steps 600"):
        PretrainingConfig(steps=600)
    assert PretrainingConfig(steps=600, warmup=0.1).warmup == 0.1


GROUPS = groups_of(documents([[2, 4, 4, 4], [3, 4], [2, 4, 4]]), "dpc", seed=1)
CONFIG = PretrainingConfig(
    steps=4,
    examples_per_step=10,
    learning_rate=3e-2,
    warmup=1,
    max_length=62,
    evaluate_every=2,
    precision="fp32",
)


def trained(
    folder: Path, start: Start, dev: list[Example], config: PretrainingConfig, select: Choice = "last"
) -> dict[str, float]:
    """The figures of the weights that a run has chosen."""
    examples = DevExamples(dev, batches_of(start, config), torch.device("cpu"), config, select)
    Loop(folder, pretraining_learner(start, GROUPS, config, select=select), dev_name="dev").train(examples.figures)
    return examples.figures(start.network)


def test_metrics_are_those_of_the_trained_network(tmp_path: Path) -> None:
    """Accuracy, positives in front and hard negatives behind, counted from the network's own scores after training."""
    listed = [GROUPS.group(index) for index in range(12)]
    start = build_start(open_base(str(save_base("bert", tmp_path / "base"))), LossWeights(mlm=0), seed=1)
    before = {name: value.clone() for name, value in start.network.state_dict().items()}
    dev = [example for group in listed for example in group]
    metrics = trained(tmp_path / "out", start, dev, CONFIG)
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


@pytest.mark.parametrize("select", ["last", "ssp_first"])
def test_the_last_weights_are_taken_or_the_best(select: Choice, tmp_path: Path) -> None:
    """By default those of the last step, whatever the figure that the log has for them."""
    start = build_start(open_base(str(save_base("bert", tmp_path / "base"))), LossWeights(), seed=1)
    figures = trained(tmp_path / "out", start, GROUPS.group(0), replace(CONFIG, steps=8), select)
    log = [line for line in read_log(tmp_path / "out" / "log.jsonl") if "dev" in line and line["step"]]
    chosen = log[-1] if select == "last" else max(log, key=lambda line: line["dev"])
    for name in ("ssp_accuracy", "ssp_first", "mlm"):
        assert figures[name] == pytest.approx(chosen[f"dev/{name}"], rel=1e-5)
    last = torch.load(tmp_path / "out" / "state.pt", weights_only=True)["ranker"]
    taken = start.network.state_dict()
    assert all(torch.equal(value, taken[name]) for name, value in last.items()) is (chosen is log[-1])


def test_equal_scores_count_as_the_expectation_over_their_order() -> None:
    """A positive level with one hard negative, one level with all, and one below another; fifteen scores by hand."""
    dev = [
        Example(a="a", b=Candidate(text="b"), kind=kind) for kind in ("positive", "hard", "hard", "easy", "easy")
    ] * 3
    scores = np.asarray([2, 2, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, -1, -1, -1], dtype=np.float32)
    metrics = dev_metrics(dev, scores)
    assert metrics["ssp_first"] == pytest.approx(100 * (1 / 2 + 1 / 5 + 0) / 3)
    assert metrics["ssp_hard"] == pytest.approx(100 * (1 / 2 + 1 + 1 / 2 + 1 / 2 + 0 + 1) / 6)


def test_without_hard_negatives_they_have_no_figure() -> None:
    """Documents of one paragraph give none; 0 % would say that the head is worse than chance."""
    dev = [Example(a="a", b=Candidate(text="b"), kind="easy" if number else "positive") for number in range(5)]
    metrics = dev_metrics(dev, np.asarray([1, 0, 0, 0, 0], np.float32))
    assert metrics["ssp_first"] == 100
    assert "ssp_hard" not in metrics
