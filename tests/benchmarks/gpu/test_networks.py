from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_benchmarks.gpu.lab import Sizes, lab_for
from cerberank_benchmarks.gpu.networks import (
    ALBERT_XXLARGE,
    BASE,
    CASCADE,
    LARGE,
    MINI,
    THREE_HEADS,
    WHOLE_HEADS,
    Shape,
    config_of,
    operations,
)
from cerberank_benchmarks.gpu.table5 import PRINTED
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


@pytest.mark.parametrize(
    ("shape", "giga"),
    [(BASE, 22.3), (LARGE, 78.9), (ALBERT_XXLARGE, 622), (WHOLE_HEADS, 26.1)],
    ids=["base", "large", "xxlarge", "heads"],
)
def test_the_papers_table_5_has_pairs_of_128_tokens(shape: Shape, giga: float, tmp_path: Path) -> None:
    """Operations of a pair, divided by the printed times in ms, are 10 to 13.5 TFLOP/s: just below a V100's 15.7."""
    lab = lab_for("cpu", sizes=Sizes(), scratch=tmp_path, tokenizer=tmp_path)
    pair = operations(config_of(lab, shape), 1, lab.sizes.paper_tokens)
    assert pair == pytest.approx(giga * 1e9, rel=0.005)
    assert 10e12 < pair / (PRINTED[shape] / 1000) < 13.5e12
