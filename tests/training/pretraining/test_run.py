"""What a run measures, and which checkpoint it goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.training.pretraining.documents import documents
from tests.training.pretraining.networks import save_base

from cerberank_training.pretraining.base import Base, build_start
from cerberank_training.pretraining.examples import Example, ExampleGroups
from cerberank_training.pretraining.network import LossWeights
from cerberank_training.pretraining.run import STATE, PretrainingConfig, last_checkpoint, pretrain


def test_a_tiny_network_learns_what_repeats(tmp_path: Path) -> None:
    """On its own documents, whose paragraphs share words, SSP alone comes to tell positives from hard negatives."""
    found = documents([[2, 4, 4, 4], [2, 4, 4, 4]])
    groups = ExampleGroups(found, "sdc", seed=1)
    dev: list[Example] = [example for index in range(6) for example in groups.group(index)]
    start = build_start(Base(source=str(save_base("bert", tmp_path / "base"))), LossWeights(mlm=0), seed=1)
    config = PretrainingConfig(
        steps=60, batch_size=24, learning_rate=3e-3, warmup=5, max_length=62, evaluate_every=60, device="cpu"
    )
    metrics = pretrain(start, tmp_path / "out", groups, dev, config)
    assert metrics["ssp_accuracy"] > 85
    assert metrics["ssp_hard"] > 75
    assert "mlm" not in metrics


def test_the_newest_whole_checkpoint_counts(tmp_path: Path) -> None:
    """One without the file that is written last, or with a part of it, is passed over."""
    assert last_checkpoint(tmp_path / "none") is None
    for step, content in ((2, "{}"), (10, "{}"), (100, '{"epo'), (200, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if content is not None:
            (folder / STATE).write_text(content)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("size", [0, 6, -4])
def test_a_batch_holds_whole_groups(size: Any) -> None:
    """Batches of four, eight, and so on."""
    with pytest.raises(ValueError, match="multiple of 4"):
        PretrainingConfig(batch_size=size)
