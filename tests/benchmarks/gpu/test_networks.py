from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_benchmarks.gpu.lab import Sizes, lab_for
from cerberank_benchmarks.gpu.networks import (
    CASCADE,
    MINI,
    THREE_HEADS,
    config_of,
    operations,
)
from cerberank_models.drop import relative_cost


def test_operations_by_hand(tmp_path: Path) -> None:
    """500 pairs of 50 tokens: the matrix products of B11 3H1 are 4.07e12, MiniLM's .46e12. A cascade's operations,
    relative to dropping nothing, are the layers run, within what exits, heads and rounding differ.
    """
    lab = lab_for("cpu", sizes=Sizes(), scratch=tmp_path, tokenizer=tmp_path / "none")
    tokens, width = 25_000, 768
    body = 11 * 2 * tokens * (4 * width**2 + 8 * width**2)
    first = 500 * 2 * (2 * width**2 + 8 * width**2 + width**2)
    heads = 3 * (2 * tokens * 2 * width**2 + first)
    attention = 4 * 50 * width * (11 * tokens + 3 * 500)
    assert operations(config_of(lab, THREE_HEADS), 500, 50) == pytest.approx(body + heads + attention)
    assert body + heads - 3 * first == pytest.approx(4.07e12, rel=0.002)
    assert operations(config_of(lab, MINI), 500, 50) == pytest.approx(0.46e12, rel=0.03)
    cascade = config_of(lab, CASCADE)
    policy = cascade.drop_policy(0.5)
    share = operations(cascade, 512, 50, policy) / operations(cascade, 512, 50)
    assert share == pytest.approx(relative_cost(cascade.stage_layers, policy.ratios), rel=0.02)
