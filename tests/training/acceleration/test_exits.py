"""Exits learn a model's own scores and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from tests.tiny import random_pairs, random_ranker

from cerberank_models.config import ExitConfig
from cerberank_models.network.exits import Exit
from cerberank_training.acceleration.exits import Exits, exits_learner, with_exits
from cerberank_training.acceleration.states import ExitInputs
from cerberank_training.runs.loop import Loop
from cerberank_training.runs.settings import TrainConfig

TRAINING = TrainConfig(
    steps=75, examples_per_step=8, learning_rate=3e-3, warmup=0, clip=0, precision="fp32", evaluate_every=75
)


def made_up(questions: int = 60, candidates: int = 8) -> ExitInputs:
    """The first exit can read the logit from its vectors, the second sees noise."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(0, 1, (questions * candidates, 2, 32)).astype(np.float16)
    logits = 2 * vectors[:, 0, :4].sum(axis=1, dtype=np.float32)
    offsets = np.arange(questions + 1) * candidates
    return ExitInputs(offsets=offsets, row_offsets=np.arange(len(logits) + 1), states=vectors, logits=logits)


def exits(seed: int = 1) -> Exits:
    ranker = with_exits(random_ranker(heads=1), [ExitConfig(after=1), ExitConfig(after=2)], seed=seed)
    return Exits([cast(Exit, exit_) for exit_ in ranker.exits])


def train(folder: Path, exits: Exits, inputs: ExitInputs, config: TrainConfig = TRAINING) -> None:
    Loop(folder, exits_learner(exits, inputs, 50, config)).train(lambda exits: 0.0)


def test_an_exit_learns_the_model_s_own_order(tmp_path: Path) -> None:
    """On questions that it was not trained on it finds the own first candidate where its vectors tell it, else not."""
    found, learned = made_up(250), exits()
    train(tmp_path, learned, found)
    with torch.inference_mode():
        logits = learned(torch.from_numpy(found.states[400:]), torch.arange(1601)).numpy().reshape(200, 8, 2)
    own = found.logits[400:].reshape(200, 8)
    right = [(logits[:, :, exit_].argmax(axis=1) == own.argmax(axis=1)).mean() for exit_ in (0, 1)]
    assert right[0] >= 0.7
    assert right[1] <= 0.3


def test_the_result_follows_from_vectors_and_settings(tmp_path: Path) -> None:
    """The same weights twice, and others for another seed; questions beyond the first ones are not read."""
    short = replace(TRAINING, steps=7, evaluate_every=7)
    found, weights = made_up(), []
    for number, seed in enumerate((1, 1, 2)):
        learned = exits(seed)
        train(tmp_path / str(number), learned, found, replace(short, seed=seed))
        weights.append(learned.state_dict()["exits.0.output.weight"])
        found.logits[400:] = np.nan
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("heads", [0, 1, 3])
def test_new_exits_leave_the_final_scores(heads: int) -> None:
    """Final scores of a plain encoder (whose last exit scores), of one head and of three stay; old exits go."""
    source = random_ranker(heads=heads, body_layers=3 if heads else 4, exits=(1, 2) if heads else (1, 4))
    source.config = source.config.model_copy(update={"drop_schedule": (0.5,) * (2 if heads else 1)})
    ranker = with_exits(source, [ExitConfig(after=3, pooling="first")], seed=1)
    assert ranker.config.exits[0] == ExitConfig(after=3, pooling="first")
    assert len(ranker.config.stages) == 2
    assert ranker.config.drop_schedule == ()
    pairs = random_pairs([5, 9])
    inputs = [torch.from_numpy(value) for value in (pairs.token_ids, pairs.type_ids, pairs.offsets)]
    with torch.inference_mode():
        torch.testing.assert_close(ranker(*inputs), source(*inputs), rtol=0, atol=1e-6)


@pytest.mark.parametrize("heads", [0, 3])
def test_new_exits_read_through_the_model_s_last_norm(heads: int) -> None:
    """ModernBERT's, which is not 1, is that of the last exit or the first head; each head's own stays."""
    source = random_ranker(
        family="modernbert", heads=heads, body_layers=3 if heads else 4, exits=(1, 2) if heads else (1, 4)
    )
    norms = [part.get_submodule("norm").get_parameter("weight") for part in (*source.exits, *source.heads)]
    for number, norm in enumerate(norms, start=2):
        norm.data.fill_(number)
    ranker = with_exits(source, [ExitConfig(after=1), ExitConfig(after=2)], seed=1)
    found = [part.get_submodule("norm").get_parameter("weight").mean().item() for part in ranker.exits]
    assert found == ([3, 3, 3] if heads == 0 else [4, 4])
    own = [head.get_submodule("norm").get_parameter("weight").mean().item() for head in ranker.heads]
    assert own == [4, 5, 6][:heads]
