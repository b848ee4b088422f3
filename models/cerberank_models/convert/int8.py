"""Quantises a ranker for ONNX Runtime: int8 weights, and uint8 activations with fixed scales.

Three methods keep the scores close to fp32 (docs/decisions/0001 has the figures):

1. SmoothQuant (Xiao et al., 2023): each input channel is divided by a factor, and its weights are multiplied by it, so
   that a few large channels do not determine the resolution of all others.
2. The channels of a feed-forward's inner layer that are still the largest are multiplied in fp32: sixteen of 1,536.
3. Ranges are measured on real texts before export, so that a score does not depend on the rest of its batch.

Processors without VNNI or AMX add products of uint8 and int8 in 16 bits, which saturate. On these, ONNX Runtime
converts weights to uint8 when it opens a graph (`backends/onnx_session.py`), but only weights that a single node reads.

Exits, classifiers, norms and attention stay in fp32, because they are a thousandth of the work and determine the order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.absorbed import can_absorb
from cerberank_models.network.bodies.body import Layer
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.precision import in_precision
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.text_ranker import TextVectors

NetworkT = TypeVar("NetworkT", RankingNetwork, TextVectors)
SMOOTHING = 0.8
"""SmoothQuant's alpha. 1 moves all of an input channel's spread into the weights, 0 nothing."""
FP32_CHANNELS = 16
"""The number of input channels that stay in fp32 in each product that reads inner channels (`inner_products`)."""

LARGEST_WEIGHT, LARGEST_SHARED_WEIGHT = 127, 64
"""The largest int8 number of a weight, and of a weight that several nodes read, as those of ALBERT's layer. The latter
is chosen so that the sum of two products of a uint8 and a weight fits into 16 bits: 2 * 255 * 64 < 2**15."""


MARGIN, GOLDEN_MARGIN = 1.1, 1.5
"""The factors that widen int8 ranges which were measured on given texts, or on the few golden texts."""


@dataclass(frozen=True, slots=True)
class RangeBatches:
    """The batches on which int8 ranges are measured, and the factor that widens the ranges."""

    batches: Sequence[EncodedPairs]
    margin: float

    @classmethod
    def of(cls, calibration: Sequence[EncodedPairs], golden: Sequence[EncodedPairs]) -> RangeBatches:
        """The texts that the caller gave, or else the golden texts, which are too few for a narrow range."""
        return cls(calibration, MARGIN) if calibration else cls(golden, GOLDEN_MARGIN)


@dataclass(frozen=True, slots=True)
class InputRange:
    """The range, `low[K]` to `high[K]` by channel, of an input that all linear layers in `readers` read."""

    readers: tuple[str, ...]
    low: Tensor
    high: Tensor

    @property
    def largest(self) -> Tensor:
        """The largest magnitude of each channel, `[K]`."""
        return self.low.abs().maximum(self.high.abs())

    def merge(self, other: InputRange) -> InputRange:
        """The smallest range that covers both ranges, for the readers of both."""
        readers = tuple(dict.fromkeys(self.readers + other.readers))
        return InputRange(readers, self.low.minimum(other.low), self.high.maximum(other.high))


@torch.no_grad()
def measure_ranges(ranker: RankingNetwork | TextVectors, batches: Sequence[EncodedPairs]) -> list[InputRange]:
    """Run the fp32 `ranker` on `batches`, and record the range of the input of every linear layer to be quantised.

    Raises ValueError if `batches` has no pair, because all scores would be the same with empty ranges.
    """
    batches = [batch for batch in batches if len(batch.offsets) > 1]
    if not batches:
        raise ValueError("int8 needs at least one question with a candidate to measure activations on")
    ranges: dict[tuple[str, ...], InputRange] = {}
    for batch in batches:
        for seen in _measure(ranker, batch):
            before = ranges.get(seen.readers)
            ranges[seen.readers] = seen if before is None else before.merge(seen)
    return _joined(ranges.values())


def _joined(ranges: Iterable[InputRange]) -> list[InputRange]:
    """The ranges, merged if they share a reader, because a layer that runs at several depths has one scale."""
    joined: list[InputRange] = []
    for seen in ranges:
        apart, merged = [], seen
        for other in joined:
            if set(other.readers).isdisjoint(seen.readers):
                apart.append(other)
            else:
                merged = other.merge(merged)
        joined = [*apart, merged]
    return joined


def quantise(ranker: NetworkT, ranges: Sequence[InputRange], *, margin: float) -> NetworkT:
    """A copy of `ranker` in which products and token embeddings are ONNX Runtime's int8 operators.

    Ranges are widened by `margin`, because saturation costs more accuracy than a coarser scale. The copy can be
    exported, but not run, because its operators exist only in ONNX Runtime.
    """
    quantised = copy.deepcopy(ranker)
    inner = _inner_products(quantised)
    largest = LARGEST_SHARED_WEIGHT if ranker.encoder.shared_layers else LARGEST_WEIGHT
    for seen in [_outliers_first(quantised, seen, inner.get(seen.readers[0], ())) for seen in ranges]:
        readers = [quantised.get_submodule(name) for name in seen.readers]
        fp32_channels = FP32_CHANNELS if seen.readers[0] in inner and len(seen.low) > FP32_CHANNELS else 0
        for name, linear in zip(seen.readers, _quantised(readers, seen, margin, fp32_channels, largest), strict=True):
            quantised.set_submodule(name, linear)
    table = "embeddings.tokens"
    quantised.set_submodule(table, _QuantisedEmbedding(ranker.get_parameter(f"{table}.weight")))
    return quantised


def in_form(network: NetworkT, precision: str, ranges_on: RangeBatches) -> NetworkT:
    """The network that is exported in `precision` (fp32, fp16, int8), with int8 ranges that are measured on texts."""
    if precision == "int8":
        return quantise(network, measure_ranges(network, ranges_on.batches), margin=ranges_on.margin)
    if precision == "fp16":
        return in_precision(copy.deepcopy(network), torch.float16)
    return network


def dequantise(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The fp32 weights for the `state` of a network from `quantise`, by their names in the network before.

    A quantised weight is restored within half a step of int8; channels that were kept in fp32, and weights that were
    not quantised, are exact. The inner channels of feed-forwards may be in another order, which has no effect.
    """
    weights = {}
    for name, value in state.items():
        owner, _, part = name.rpartition(".")
        if part == "rows":
            weights[f"{owner}.weight"] = value.float() * state[f"{owner}.scale"]
        elif f"{owner}.weight_scale" in state and part == "weight":
            inputs = value.float() * state[f"{owner}.weight_scale"] * state[f"{owner}.entry.inverse"][:, None]
            exact = state.get(f"{owner}.fp32_weight")
            if exact is not None:
                inputs[: len(exact)] = exact
            weights[name] = inputs.T.contiguous()
        elif part == "bias" or (f"{owner}.weight_scale" not in state and part == "weight"):
            weights[name] = value.float()
    return weights


def _measure(ranker: RankingNetwork | TextVectors, batch: EncodedPairs) -> list[InputRange]:
    inputs: dict[int, Tensor] = {}
    readers: dict[int, list[str]] = {}
    handles = []
    absorbed = _absorbed(ranker)
    for name, module in ranker.named_modules():
        if isinstance(module, nn.Linear) and not _stays_fp32(name) and name not in absorbed:

            def remember(_: nn.Module, arguments: tuple[Tensor], name: str = name) -> None:
                # Inputs are kept until all layers have run, because Python may reuse the id of a freed tensor.
                inputs[id(arguments[0])] = arguments[0]
                readers.setdefault(id(arguments[0]), []).append(name)

            handles.append(module.register_forward_pre_hook(remember))
    token_ids, type_ids, offsets = (
        torch.from_numpy(array) for array in (batch.token_ids, batch.type_ids, batch.offsets)
    )
    try:
        if isinstance(ranker, RankingNetwork):
            ranker(token_ids, type_ids, offsets)
        else:
            ranker.read(token_ids, type_ids, PackedLayout.of(offsets))
    finally:
        for handle in handles:
            handle.remove()
    rows = {key: value.flatten(0, -2) for key, value in inputs.items()}
    return [InputRange(tuple(readers[key]), value.amin(0), value.amax(0)) for key, value in rows.items()]


def _absorbed(ranker: RankingNetwork | TextVectors) -> set[str]:
    """The names of projections that are plain matrix products in an exported graph (`absorbed.py`)."""
    if not isinstance(ranker, RankingNetwork) or not can_absorb(ranker):
        return set()
    last = ranker.config.architecture.head_layers - 1
    return {f"heads.{head}.layers.{last}.{part}" for head in range(len(ranker.heads)) for part in ("key", "value")}


def _stays_fp32(name: str) -> bool:
    return "classifier" in name or name.startswith(("exits.", "token_ranker."))


def _inner_products(ranker: RankingNetwork | TextVectors) -> dict[str, tuple[str, ...]]:
    """For each linear layer that reads a feed-forward's inner channels: the layers that compute them, by full names."""
    layers = [(name, module) for name, module in ranker.named_modules() if isinstance(module, Layer)]
    return {
        f"{name}.{reader}": tuple(f"{name}.{maker}" for maker in makers)
        for name, layer in layers
        for reader, makers in layer.inner_products.items()
    }


def _outliers_first(ranker: RankingNetwork | TextVectors, seen: InputRange, makers: Sequence[str]) -> InputRange:
    """Reorder a feed-forward's inner channels, so that those kept in fp32 are a slice. Results do not change."""
    if not makers:
        return seen
    weight = ranker.get_parameter(f"{seen.readers[0]}.weight")
    order = (seen.largest * weight.detach().abs().amax(0)).argsort(descending=True)
    weight.data = weight.data[:, order]
    for maker in makers:
        for parameter in ranker.get_submodule(maker).parameters():  # a row of the weight, and a bias, per channel
            parameter.data = parameter.data[order]
    return InputRange(seen.readers, seen.low[order], seen.high[order])


def _quantised(
    readers: Sequence[nn.Module], seen: InputRange, margin: float, fp32_channels: int, largest: int
) -> list[nn.Module]:
    """The int8 form of linear layers that read the same input, which is smoothed and quantised once for all of them."""
    linears = [reader for reader in readers if isinstance(reader, nn.Linear)]
    weights = torch.stack([linear.weight.detach().abs().amax(0) for linear in linears]).amax(0).clamp(min=1e-4)
    smooth = seen.largest.clamp(min=1e-3) ** SMOOTHING / weights ** (1 - SMOOTHING)
    low, high = (seen.low / smooth)[fp32_channels:].min(), (seen.high / smooth)[fp32_channels:].max()
    entry = _QuantisedInput(smooth, margin * low.clamp(max=0), margin * high.clamp(min=0))
    return [_QuantisedLinear(linear, entry, smooth, fp32_channels, largest) for linear in linears]


class _QuantisedInput(nn.Module):
    def __init__(self, smooth: Tensor, low: Tensor, high: Tensor) -> None:
        super().__init__()
        scale = ((high - low) / 255).clamp(min=1e-8)
        self.inverse = nn.Buffer(1 / smooth)
        self.scale = nn.Buffer(scale)
        self.zero_point = nn.Buffer((-low / scale).round().to(torch.uint8))

    def forward(self, hidden: Tensor) -> Tensor:
        inputs = (hidden * self.inverse, self.scale, self.zero_point)
        quantised: Tensor = torch.onnx.ops.symbolic("QuantizeLinear", inputs, dtype=torch.uint8, shape=hidden.shape)
        return quantised


class _QuantisedLinear(nn.Module):
    def __init__(
        self, linear: nn.Linear, entry: _QuantisedInput, smooth: Tensor, fp32_channels: int, largest: int
    ) -> None:
        super().__init__()
        self.entry = entry
        weight = (linear.weight.detach() * smooth).T.contiguous()  # [K, out]
        weight[:fp32_channels] = 0.0
        scale = (weight.abs().amax(0) / largest).clamp(min=1e-12)
        self.weight = nn.Buffer((weight / scale).round().to(torch.int8))
        self.weight_scale = nn.Buffer(scale)
        self.bias = nn.Buffer(torch.zeros(len(scale)) if linear.bias is None else linear.bias.detach().clone())
        self.fp32_channels = fp32_channels
        exact = linear.weight.detach().T[:fp32_channels].contiguous()
        self.fp32_weight = nn.Buffer(exact) if fp32_channels else None

    def forward(self, hidden: Tensor) -> Tensor:
        quantised = self.entry(hidden)
        inputs = (
            quantised,
            self.weight,
            self.entry.scale,
            self.weight_scale,
            self.entry.zero_point,
            None,  # no zero point: ONNX Runtime cannot convert one that several nodes share to uint8
            self.bias,
        )
        product: Tensor = torch.onnx.ops.symbolic(
            "com.microsoft::MatMulIntegerToFloat",
            inputs,
            dtype=torch.float32,
            shape=(*hidden.shape[:-1], len(self.bias)),
            version=1,
        )
        return product if self.fp32_weight is None else product + hidden[..., : self.fp32_channels] @ self.fp32_weight


class _QuantisedEmbedding(nn.Module):
    """An embedding table with int8 rows and one scale per row."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        scale = (weight.detach().abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
        self.rows = nn.Buffer((weight.detach() / scale).round().to(torch.int8))
        self.scale = nn.Buffer(scale)

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.rows[token_ids].float() * self.scale[token_ids]
