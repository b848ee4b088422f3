"""The layout of the GPU's kernel, on a CPU with an oracle instead of the kernel, against `PackedLayout`."""

from __future__ import annotations

import inspect

import pytest
import torch
from tests.bounds import ATTENDED
from tests.models.network.varlen_oracle import varlen_oracle
from torch import Tensor

from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.varlen import VarlenLayout, kernel_for

LENGTHS = [5, 9, 3, 12, 9]
HEADS, SIZE = 3, 8


def random_qkv() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(sum(LENGTHS), HEADS, SIZE, generator=generator) for _ in range(3))
    return query, key, value


def layouts(extra_pairs: int = 0) -> tuple[PackedLayout, VarlenLayout]:
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    filled = torch.cat([offsets, offsets[-1].repeat(extra_pairs)])
    return PackedLayout.of(offsets), VarlenLayout(filled, 48, varlen_oracle, sum(LENGTHS))


def test_both_layouts_attend_alike() -> None:
    """All tokens, first tokens, and both ways of pooling agree with the padded copy through PyTorch's SDPA."""
    packed, varlen = layouts()
    query, key, value = random_qkv()
    first = packed.first(query)
    hidden = query.flatten(1)
    for expected, got in (
        (packed.attend(query, key, value, 0.0), varlen.attend(query, key, value, 0.0)),
        (packed.attend_first(first, key, value, 0.0), varlen.attend_first(first, key, value, 0.0)),
        (packed.first(hidden), varlen.first(hidden)),
        (packed.mean(hidden), varlen.mean(hidden)),
    ):
        assert got.shape == expected.shape
        assert (got - expected).abs().max() <= ATTENDED
    assert torch.equal(layouts(extra_pairs=2)[1].inner(), packed.inner())


@pytest.mark.parametrize("window", [1, 4, 11, 60])
def test_both_layouts_have_the_same_windows(window: int) -> None:
    """All tokens and first tokens, in windows smaller and larger than the pairs; empty pairs change nothing."""
    packed, varlen = layouts(extra_pairs=2)
    query, key, value = random_qkv()
    expected = packed.attend(query, key, value, 0.0, window=window)
    assert (varlen.attend(query, key, value, 0.0, window=window) - expected).abs().max() <= ATTENDED
    for layout in (packed, varlen):
        got = layout.attend_first(layout.first(query), key, value, 0.0, window=window)[: len(LENGTHS)]
        assert (got - packed.first(expected)).abs().max() <= ATTENDED


def test_a_window_hides_what_is_further_away() -> None:
    """A token's result depends on the tokens of its pair within the window, and on no others."""
    packed, _ = layouts()
    query, key, value = random_qkv()
    other = value.clone()
    other[5 + 4] += 1.0  # the fifth token of the second pair, of nine
    moved = (packed.attend(query, key, other, 0.0, window=2) - packed.attend(query, key, value, 0.0, window=2)).abs()
    assert moved.flatten(1).amax(1).gt(0).nonzero()[:, 0].tolist() == [7, 8, 9, 10, 11]


def test_pairs_without_tokens_change_nothing() -> None:
    """Empty pairs at the end leave the results of the others bit for bit unchanged."""
    _, alone = layouts()
    _, filled = layouts(extra_pairs=4)
    query, key, value = random_qkv()
    hidden, count = query.flatten(1), len(LENGTHS)
    assert torch.equal(alone.attend(query, key, value, 0.0), filled.attend(query, key, value, 0.0))
    assert torch.equal(alone.first(hidden), filled.first(hidden)[:count])
    assert torch.equal(alone.mean(hidden), filled.mean(hidden)[:count])


def test_both_layouts_count_positions_alike() -> None:
    """Pairs without tokens change nothing, and tokens of no pair stay within the longest, where tables have a row."""
    packed, varlen = layouts(extra_pairs=4)
    assert varlen.positions.tolist() == packed.positions.tolist()
    surplus = VarlenLayout(varlen.offsets, 6, varlen_oracle, sum(LENGTHS) + 20).positions
    assert surplus.max() == 5
    assert surplus.min() == 0


def test_half_precision_is_pooled_in_float32() -> None:
    """4,000 ones in float16, which counts no further than 2,048 one by one, have the mean 1."""
    offsets = torch.tensor([0, 4000], dtype=torch.int32)
    hidden = torch.ones(4000, 1, dtype=torch.float16)
    mean = VarlenLayout(offsets, 4000, varlen_oracle, 4000).mean(hidden)
    assert mean.dtype == torch.float16
    assert mean.item() == 1.0


def test_dropout_is_refused() -> None:
    """The kernel refuses dropout, so training cannot use it by accident."""
    _, varlen = layouts()
    query, key, value = random_qkv()
    with pytest.raises(ValueError, match="dropout"):
        varlen.attend(query, key, value, 0.1)
    with pytest.raises(ValueError, match="dropout"):
        varlen.attend_first(varlen.first(query), key, value, 0.1)


def test_the_kernel_is_taken_only_where_it_runs() -> None:
    """A CPU, fp32 or a head size that it does not take means the padded copy."""
    assert kernel_for(torch.device("cpu"), torch.float16, 32) is None
    assert kernel_for(torch.device("cuda"), torch.float32, 32) is None
    assert kernel_for(torch.device("cuda"), torch.float16, 12) is None
    assert kernel_for(torch.device("cuda"), torch.float16, 512) is None
    assert kernel_for(torch.device("cpu"), torch.float16, 32, windows=True) is None


def test_the_installed_kernel_takes_our_call() -> None:
    """PyTorch's function has the seven leading parameters that we pass by position, and needs no other."""
    varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this PyTorch has no variable-length attention")
    parameters = list(inspect.signature(varlen.varlen_attn).parameters.values())
    assert [parameter.name for parameter in parameters[:7]] == [
        *("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k")
    ]
    assert all(parameter.default is not parameter.empty for parameter in parameters[7:])
    assert all(parameter.default == (-1, -1) for parameter in parameters if parameter.name == "window_size")
