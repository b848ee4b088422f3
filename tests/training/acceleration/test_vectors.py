"""The vectors are what exits see, and are computed once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from tests.bounds import PROBABILITIES
from tests.tiny import random_ranker
from tests.training.letters import encoder, questions

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.network.exits import Exit
from cerberank_training.acceleration.exits import Exits
from cerberank_training.acceleration.vectors import FrozenBody, compute_vectors
from cerberank_training.evaluation.variants import Scorer, score_questions


def test_exits_give_the_served_scores_from_the_vectors(tmp_path: Path) -> None:
    """Within float16's rounding at every exit; the own logits are those of the final scores."""
    ranker = random_ranker()
    found = compute_vectors(tmp_path, FrozenBody.of(ranker), encoder(), questions())
    exits = [cast(Exit, exit_) for exit_ in ranker.exits]
    with torch.inference_mode():
        logits = Exits(exits)(torch.from_numpy(found.vectors).float())
    for index, (_, scores) in enumerate(
        score_questions(Scorer(backend=TorchBackend(ranker), encoder=encoder()), questions())
    ):
        rows = found.rows(index)
        for exit_ in range(2):
            # Vectors are rounded by 2^-11 of their size; the weights here amplify it, a probability by at most 1/4.
            np.testing.assert_allclose(logits[rows, exit_].sigmoid(), scores.stages[exit_], atol=0.02)
        np.testing.assert_allclose(1 / (1 + np.exp(-found.logits[rows])), scores.stages[-1], atol=PROBABILITIES)


def test_what_is_there_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question whose logits are missing is computed, the others are taken as they are; the ranker is not changed."""
    ranker = random_ranker()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    first = compute_vectors(tmp_path, FrozenBody.of(ranker, precision="bf16"), encoder(), questions())
    assert all(torch.equal(value, before[name]) for name, value in ranker.state_dict().items())
    wanted = np.array(first.vectors)
    first.logits[first.rows(2)] = np.nan
    first.vectors[first.rows(2)] = 0
    asked: list[int] = []
    start = TorchBackend.start
    monkeypatch.setattr(TorchBackend, "start", lambda self, pairs: (asked.append(len(pairs)), start(self, pairs))[1])
    again = compute_vectors(tmp_path, FrozenBody.of(ranker, precision="bf16"), encoder(), questions())
    assert asked == [5]
    np.testing.assert_array_equal(again.vectors, wanted)
    assert not np.isnan(again.logits).any()


def test_vectors_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    """Not as infinities, on which exits would learn nothing."""
    ranker = random_ranker(body_layers=3, heads=1)
    last = cast(torch.nn.Module, ranker.body[0])
    for name, weight in last.named_parameters():
        if "norm" in name.lower():
            weight.data *= 1e6
    with pytest.raises(ValueError, match="float16"):
        compute_vectors(tmp_path, FrozenBody.of(ranker), encoder(), questions())
