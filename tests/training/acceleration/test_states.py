"""The states are what exits read, and are computed once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from tests.bounds import PROBABILITIES
from tests.decoders import PROMPT, decoder_of, qwen_tokenizer
from tests.tiny import random_ranker
from tests.training.letters import encoder, questions

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.config import EncodingConfig, ExitConfig
from cerberank_models.encoding import PairEncoder
from cerberank_models.network.exits import Exit
from cerberank_training.acceleration.exits import Exits, state_batch, with_exits
from cerberank_training.acceleration.states import FrozenBody, compute_states
from cerberank_training.evaluation.variants import Scorer, score_questions


@pytest.mark.parametrize("features", [0, 3])
def test_exits_give_the_served_scores_from_the_states(tmp_path: Path, features: int) -> None:
    """Within float16's rounding at every exit, of pooled vectors or of tokens; the own logits are the final scores."""
    ranker = with_exits(random_ranker(), [ExitConfig(after=after, token_features=features) for after in (1, 3)], seed=1)
    found = compute_states(tmp_path, FrozenBody.of(ranker), encoder(), questions())
    exits = [cast(Exit, exit_) for exit_ in ranker.exits]
    for index, (_, scores) in enumerate(
        score_questions(Scorer(backend=TorchBackend(ranker), encoder=encoder()), questions())
    ):
        batch = state_batch([index], found)
        with torch.inference_mode():
            probabilities = Exits(exits)(batch.states, batch.offsets).sigmoid()
        for exit_ in range(2):
            # States are rounded by 2^-11 of their size; the weights here amplify it, a probability by at most 1/4.
            np.testing.assert_allclose(probabilities[:, exit_], scores.stages[exit_], atol=0.02)
        np.testing.assert_allclose(batch.logits.sigmoid(), scores.stages[-1], atol=PROBABILITIES)


def test_what_is_there_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question whose logits are missing is computed, the others are taken as they are; the ranker is not changed."""
    ranker = random_ranker()
    before = {name: value.clone() for name, value in ranker.state_dict().items()}
    first = compute_states(tmp_path, FrozenBody.of(ranker, precision="bf16"), encoder(), questions())
    assert all(torch.equal(value, before[name]) for name, value in ranker.state_dict().items())
    wanted = np.array(first.states)
    first.logits[first.pairs(2)] = np.nan
    first.states[first.rows(2)] = 0
    asked: list[int] = []
    start = TorchBackend.start
    monkeypatch.setattr(TorchBackend, "start", lambda self, pairs: (asked.append(len(pairs)), start(self, pairs))[1])
    again = compute_states(tmp_path, FrozenBody.of(ranker, precision="bf16"), encoder(), questions())
    assert asked == [5]
    np.testing.assert_array_equal(again.states, wanted)
    assert not np.isnan(again.logits).any()


@pytest.mark.parametrize("missing", ["states.npy", "logits.npy"])
def test_a_file_without_the_other_is_made_anew(tmp_path: Path, missing: str) -> None:
    """A call was killed before it wrote the logits, or version 0.1.0 wrote the folder."""
    ranker = with_exits(random_ranker(), [ExitConfig(after=1, token_features=3)], seed=1)
    wanted = compute_states(tmp_path, FrozenBody.of(ranker), encoder(), questions())
    states, logits = np.array(wanted.states), np.array(wanted.logits)
    (tmp_path / missing).unlink()
    found = compute_states(tmp_path, FrozenBody.of(ranker), encoder(), questions())
    np.testing.assert_array_equal(found.states, states)
    np.testing.assert_array_equal(found.logits, logits)


def test_a_decoder_s_exits_read_one_vector_a_pair(tmp_path: Path) -> None:
    """That of the last token, whatever tokens the pairs share."""
    ranker = with_exits(decoder_of(), [ExitConfig(after=1, pooling="last")], seed=1)
    config = EncodingConfig(prompt=PROMPT)
    reader = PairEncoder(qwen_tokenizer(), family="qwen3", config=config, type_vocab_size=0)
    found = compute_states(tmp_path, FrozenBody.of(ranker), reader, questions(2))
    assert found.states.shape == (10, 1, 32)
    for index, (_, scores) in enumerate(
        score_questions(Scorer(backend=TorchBackend(ranker), encoder=reader), questions(2))
    ):
        batch = state_batch([index], found)
        with torch.inference_mode():
            probabilities = Exits([cast(Exit, ranker.exits[0])])(batch.states, batch.offsets).sigmoid()
        np.testing.assert_allclose(probabilities[:, 0], scores.stages[0], atol=0.02)
        np.testing.assert_allclose(batch.logits.sigmoid(), scores.stages[-1], atol=PROBABILITIES)


def test_too_little_room_for_the_states_is_said_before_they_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the remedy; nothing is written."""
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="--token-features 0"):
        compute_states(tmp_path, FrozenBody.of(random_ranker()), encoder(), questions())
    assert not list(tmp_path.iterdir())


def test_states_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    """Not as infinities, on which exits would learn nothing."""
    ranker = random_ranker(body_layers=3, heads=1)
    last = cast(torch.nn.Module, ranker.body[0])
    for name, weight in last.named_parameters():
        if "norm" in name.lower():
            weight.data *= 1e6
    with pytest.raises(ValueError, match="float16"):
        compute_states(tmp_path, FrozenBody.of(ranker), encoder(), questions())
