"""A first stage in front of a ranker keeps the stage contract, and the stages of pairs stay what they were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bounds import PROBABILITIES
from tests.tiny import random_pairs

from cerberank_models.backends.registry import open_backend
from cerberank_models.backends.stage_contract import Backend, Vector
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.backend import WithFirstStage
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig
from cerberank_models.transformer import TransformerConfig

LENGTHS = [5, 30, 3, 12, 9]


class Sums:
    """Fulfils `VectorBackend`: a text's vector is its length and the sum of its token ids."""

    precision = "fp32"

    def __init__(self, transformer: TransformerConfig) -> None:
        self.config = TextRankerConfig(
            encoder="0" * 64,
            transformer=transformer,
            first_ranker="residual",
            encoding=TextEncodingConfig(question_length=8, document_length=8, window=8),
        )

    def encode(self, texts: EncodedPairs) -> Sequence[Vector]:
        spans = zip(texts.offsets[:-1], texts.offsets[1:], strict=True)
        return [np.array([b - a, texts.token_ids[a:b].sum()], np.float16) for a, b in spans]


@pytest.fixture(scope="module", params=["torch", "onnx"])
def plain(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> Backend[Any]:
    return open_backend(read_checkpoint(tiny_checkpoint), kind=request.param, precision="fp32", threads=1)


@pytest.fixture
def both(plain: Backend[Any]) -> WithFirstStage[Any]:
    return WithFirstStage(Sums(plain.config.transformer), plain)


def test_the_stages_of_pairs_are_prepared_for_full_steps(tiny_checkpoint: Path) -> None:
    """They may be captured; the first stage is not."""
    pairs, prepared = open_backend(read_checkpoint(tiny_checkpoint), kind="torch", precision="fp32", threads=1), []
    pairs.prepare = prepared.append  # type: ignore[method-assign]
    WithFirstStage(Sums(pairs.config.transformer), pairs).prepare(4096)
    assert prepared == [4096]


def test_stage_0_gives_the_vectors_and_no_state(both: WithFirstStage[Any]) -> None:
    """Texts end with stage 0: one vector each, scores of 0, nothing to run further."""
    texts = random_pairs(LENGTHS)
    output = both.run(both.start(texts), 0)
    assert output.state is None
    assert output.head_scores is None
    assert output.scores.tolist() == [0.0] * len(LENGTHS)
    assert output.vectors is not None
    assert [vector[0] for vector in output.vectors] == LENGTHS


def test_the_stages_of_pairs_follow_as_stages_1_and_up(both: WithFirstStage[Any], plain: Backend[Any]) -> None:
    """Stage s gives what the ranker's own stage s - 1 gives, whole, selected and joined."""
    pairs, rows = random_pairs(LENGTHS), np.array([3, 0, 4])
    state, bare = both.start(pairs), plain.start(pairs)
    for stage in range(len(plain.config.stages)):
        output, wanted = both.run(state, stage + 1), plain.run(bare, stage)
        assert np.abs(output.scores - wanted.scores).max() <= PROBABILITIES
        part = both.run(both.select(state, rows), stage + 1)
        assert np.abs(part.scores - wanted.scores[rows]).max() <= PROBABILITIES
        twice = both.run(both.concat([state, state]), stage + 1)
        assert np.abs(twice.scores - np.tile(wanted.scores, 2)).max() <= PROBABILITIES
        state, bare = output.state, wanted.state
    assert state is None


def test_a_state_takes_memory_once_a_stage_of_pairs_has_run(both: WithFirstStage[Any], plain: Backend[Any]) -> None:
    """Token ids count nothing; hidden states count as the ranker's own."""
    pairs = random_pairs(LENGTHS)
    assert both.state_bytes(both.start(pairs)) == 0
    state = both.run(both.start(pairs), 1).state
    assert both.state_bytes(state) == plain.state_bytes(plain.run(plain.start(pairs), 0).state) > 0


def test_texts_and_pairs_never_meet(both: WithFirstStage[Any]) -> None:
    """A state that has run pairs runs no texts and joins no state that has not run; a new one skips no stage."""
    begun, new = both.run(both.start(random_pairs(LENGTHS)), 1).state, both.start(random_pairs(LENGTHS))
    assert begun is not None
    for state, stage in ((begun, 0), (begun, 1), (new, 2)):
        with pytest.raises(ValueError, match=f"does not wait for stage {stage}"):
            both.run(state, stage)
    with pytest.raises(ValueError, match="different stages"):
        both.concat([begun, new])


def test_a_vector_that_is_not_finite_has_no_score(both: WithFirstStage[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad vector gives NaN for its own text, by which a caller tells it."""
    bad = [np.array([1.0, np.inf], np.float16), np.array([1.0, 2.0], np.float16)]
    monkeypatch.setattr(Sums, "encode", lambda self, texts: bad)
    assert np.isnan(both.run(both.start(random_pairs([3, 4])), 0).scores).tolist() == [True, False]


def test_the_rest_is_the_rankers_own(both: WithFirstStage[Any], plain: Backend[Any]) -> None:
    """Config, precision, counts and the device's memory are those of the stages of pairs; memory is freed there."""
    assert (both.config, both.precision) == (plain.config, plain.precision)
    assert (both.counts, both.device_memory) == (plain.counts, plain.device_memory)
    both.free_memory()
