from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cerberank_benchmarks.gpu.lab import TINY, Lab, Sizes, lab_for
from cerberank_benchmarks.gpu.networks import (
    BASE,
    CASCADE,
    LARGE,
    MINI,
    ONE_HEAD,
    THREE_HEADS,
    Shape,
    config_of,
    equal_pairs,
    mixed_pairs,
    operations,
    random_ranker,
)
from cerberank_models.drop import relative_cost


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return lab_for("cpu", sizes=Sizes(), scratch=tmp_path, tokenizer=tmp_path / "none")


@pytest.mark.parametrize(
    ("shape", "heads", "name"),
    [
        (MINI, 12, "B5 1H1"),
        (BASE, 12, "B12 0H1"),
        (ONE_HEAD, 12, "B11 1H1"),
        (THREE_HEADS, 12, "B11 3H1"),
        (LARGE, 16, "B24 0H1"),
    ],
)
def test_shapes_are_those_of_the_papers(lab: Lab, shape: Shape, heads: int, name: str) -> None:
    """Attention heads are 64 wide but for MiniLM's 32."""
    config = config_of(lab, shape)
    assert (config.transformer.attention_heads, str(config.architecture)) == (heads, name)


def test_operations_by_hand(lab: Lab) -> None:
    """500 pairs of 50 tokens: the matrix products of B11 3H1 are 4.07e12, MiniLM's .46e12."""
    tokens, width = 25_000, 768
    body = 11 * 2 * tokens * (4 * width**2 + 8 * width**2)
    first = 500 * 2 * (2 * width**2 + 8 * width**2 + width**2)
    heads = 3 * (2 * tokens * 2 * width**2 + first)
    attention = 4 * 50 * width * (11 * tokens + 3 * 500)
    counted = operations(config_of(lab, THREE_HEADS), 500, 50)
    assert counted == pytest.approx(body + heads + attention)
    assert body + heads - 3 * first == pytest.approx(4.07e12, rel=0.002)
    assert operations(config_of(lab, MINI), 500, 50) == pytest.approx(0.46e12, rel=0.03)


def test_operations_of_a_cascade_follow_its_op_count(lab: Lab) -> None:
    """Operations relative to dropping nothing are the layers run, within what exits, heads and rounding differ."""
    config = config_of(lab, CASCADE)
    policy = config.drop_policy(0.5)
    share = operations(config, 512, 50, policy) / operations(config, 512, 50)
    assert share == pytest.approx(relative_cost(config.stage_layers, policy.ratios), rel=0.02)


def test_networks_and_pairs_follow_from_the_seed(tmp_path: Path) -> None:
    """The same seed gives the same weights and tokens; lengths are as asked."""
    lab = lab_for("cpu", sizes=TINY, scratch=tmp_path, tokenizer=tmp_path / "none")
    first, again, other = (random_ranker(lab, MINI, seed=seed).state_dict() for seed in (0, 0, 1))
    name = "body.0.up.weight"
    assert first[name].equal(again[name])
    assert not first[name].equal(other[name])
    assert equal_pairs(lab, 3).lengths.tolist() == [20, 20, 20]
    lengths = mixed_pairs(lab, 50).lengths
    assert lengths.min() >= 10
    assert lengths.max() < 30
    assert np.array_equal(mixed_pairs(lab, 5).token_ids, mixed_pairs(lab, 5).token_ids)
