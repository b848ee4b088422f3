"""A decoder's stages with prefixes computed once, against each pair computed whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from tests.decoders import decoder_of

from cerberank_models.backends.shared_prefixes import SharedPrefixes
from cerberank_models.backends.stage_contract import probability
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs, concat_pairs

SAME = 1e-5


def pairs(prefix: int, rests: list[int], *, seed: int) -> EncodedPairs:
    """Pairs that begin with the same random tokens."""
    random = np.random.default_rng(seed)
    shared = random.integers(3, 300, prefix)
    ids = [np.concatenate([shared, random.integers(3, 300, rest)]) for rest in rests]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(each) for each in ids])])
    return EncodedPairs(
        token_ids=np.concatenate(ids).astype(np.int32),
        type_ids=np.zeros(offsets[-1], np.int32),
        offsets=offsets,
        truncated=np.zeros(len(rests), np.bool_),
        prefixes=np.full(len(rests), prefix),
    )


def test_stages_of_shared_prefixes_score_as_whole_pairs() -> None:
    """Two questions in one step, one of them without a prefix; an exit, then some of the pairs in another order."""
    ranker = decoder_of(exits=(1,))
    backend = TorchBackend(ranker)
    both = concat_pairs([pairs(9, [3, 1, 700, 5], seed=0), pairs(0, [4, 2], seed=1)])
    arrays = [torch.from_numpy(array) for array in (both.token_ids, both.type_ids, both.offsets)]
    with torch.no_grad():
        first, last = (probability(logits[:, 0].numpy()) for logits in ranker.stage_logits(*arrays, (0, 1)))
    output = backend.run(backend.start(both), 0)
    assert np.abs(output.scores - first).max() <= SAME
    assert output.state is not None
    rows = np.array([3, 0, 5, 2])
    parts = [backend.select(output.state, rows[:2]), backend.select(output.state, rows[2:])]
    assert np.abs(backend.run(backend.concat(parts), 1).scores - last[rows]).max() <= SAME
    assert np.ptp(last) > 1000 * SAME


def test_equal_tokens_are_one_group_and_others_are_not() -> None:
    """Whatever the question is: tokens decide, and the stated length."""
    one, other = pairs(4, [2, 2], seed=0), pairs(4, [2], seed=1)
    shared = SharedPrefixes.of(concat_pairs([one, other, one]))
    assert shared.group.tolist() == [0, 0, 1, 0, 0]
    assert (shared.lengths.tolist(), shared.starts.tolist()) == ([4, 4], [0, 12])
    shorter = replace(one, prefixes=np.array([4, 3]))
    assert SharedPrefixes.of(shorter).group.tolist() == [0, 1]
