"""Exports a ranker as one ONNX graph per stage: in fp32, in half precision, or in int8 (`int8.py`).

There is one graph per stage, because a runtime cannot stop inside a graph to drop candidates. The inputs of stage 0 are
token ids, and those of later stages the hidden states `[N, S, D]` of the stage before; the mask `[N, S]` is an input of
all stages. All stages but the last return hidden states with their logits. N and S are dynamic. Messages of the
exporter about its own internals are shown only if it fails.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn
from torch.export import Dim

from cerberank_models.backends.onnx_backend import OnnxBackend
from cerberank_models.convert.int8 import RangeBatches, in_form
from cerberank_models.network.absorbed import AbsorbedHeads, can_absorb
from cerberank_models.network.layout import PaddedLayout, near
from cerberank_models.network.ranking_network import RankingNetwork

NAMES = ("torch.onnx", "torch.export", "torch._export", "onnxscript", "onnx_ir")
"""The loggers of PyTorch's exporter and of the libraries that it uses, to which their child loggers propagate."""


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the warnings and log messages of the block. If it raises an error, they are shown before the error."""
    held = _Held()
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [held], False
    failed = True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        failed = False
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
        if failed:
            for record in held.records:
                logging.getLogger(record.name).handle(record)
            for warning in caught:
                logging.getLogger(__name__).warning("%s: %s", warning.category.__name__, warning.message)


class _Held(logging.Handler):
    """A handler that keeps log records in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def export_form(precision: str, ranker: RankingNetwork, folder: Path, *, ranges_on: RangeBatches) -> OnnxBackend:
    """Export `ranker` in `precision` (fp32, fp16, int8) to `folder`; returns the backend that runs its graphs."""
    graphs = export_stages(in_form(ranker, precision, ranges_on), folder)
    return OnnxBackend(graphs, ranker.config, precision=precision)


OPSET = 20
"""The default version of PyTorch's exporter. Version 23 has an Attention operator, but ONNX Runtime's own is faster."""


MASKED = -10_000.0
"""The number that masks a product of query and key, by addition. It is the operator's own number for padding, and fits
into float16. With infinity, the softmax of a padding token whose window holds only padding would be NaN.
"""


class _FirstStage(nn.Module):
    def __init__(self, ranker: RankingNetwork) -> None:
        super().__init__()
        self.ranker = ranker

    def forward(self, token_ids: Tensor, type_ids: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        layout = FusedAttentionLayout(mask, self.ranker.config.encoding.max_length)
        return _outputs(self.ranker, self.ranker.encoder.embed(token_ids, type_ids, layout), layout, 0)


class _LaterStage(nn.Module):
    def __init__(self, ranker: RankingNetwork, stage: int) -> None:
        super().__init__()
        self.ranker = ranker
        self.stage = stage

    def forward(self, hidden: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        layout = FusedAttentionLayout(mask, self.ranker.config.encoding.max_length)
        return _outputs(self.ranker, hidden, layout, self.stage)


@dataclass(frozen=True, slots=True)
class FusedAttentionLayout(PaddedLayout):
    """A padded layout that computes attention with ONNX Runtime's own operator.

    PyTorch's attention is exported with transposes, masks and NaN guards, which took a third of an int8 stage's time.
    """

    longest: int
    """The most tokens of a pair that the graph will read."""

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: float,
        *,
        window: int | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Attention as one MultiHeadAttention node; `dropout` is ignored. Raises ValueError for `causal`."""
        if causal:
            raise ValueError("decoders are not exported to ONNX")
        inputs = [query.flatten(-2), key.flatten(-2), value.flatten(-2), None, self.mask.to(torch.int32)]
        if window is not None and window + 1 < self.longest:
            far = ~near(query, key, window)
            inputs.append((far.to(query.dtype) * MASKED)[None, None])
        mixed: Tensor = torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            inputs,
            attrs={"num_heads": query.shape[-2]},
            dtype=query.dtype,
            shape=query.flatten(-2).shape,
            version=1,
        )
        return mixed.reshape(query.shape)

    def read(self, queries: Tensor, hidden: Tensor, scale: float) -> Tensor:
        """Attention as one MultiHeadAttention node with a single attention head."""
        mixed: Tensor = torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            (queries, hidden, hidden, None, self.mask.to(torch.int32)),
            attrs={"num_heads": 1, "scale": scale},
            dtype=queries.dtype,
            shape=queries.shape,
            version=1,
        )
        return mixed


def _outputs(ranker: RankingNetwork, hidden: Tensor, layout: PaddedLayout, stage: int) -> tuple[Tensor, ...]:
    heads = AbsorbedHeads(ranker.heads) if can_absorb(ranker) else None
    hidden, logits = ranker.run_stage(hidden, layout, stage, heads=heads)
    last = stage == len(ranker.config.stages) - 1
    return (logits,) if last else (logits, hidden)


INLINE_BYTES = 1_900_000_000
"""The most bytes of weights within a graph. Larger weights are written to a separate file, because protobuf cannot read
messages of 2 GiB or more."""


def export_stages(ranker: RankingNetwork, folder: Path) -> list[Path]:
    """Write `stage-<i>.onnx` for every stage into `folder`; returns the paths in order.

    Hidden states have the precision of `ranker`; logits are float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ranker = ranker.cpu().eval()
    return [_export_stage(ranker, stage, folder) for stage in range(len(ranker.config.stages))]


def _export_stage(ranker: RankingNetwork, stage: int, folder: Path) -> Path:
    inputs, shapes = _inputs(ranker, stage)
    module = _FirstStage(ranker) if stage == 0 else _LaterStage(ranker, stage)
    last = stage == len(ranker.config.stages) - 1
    path = folder / f"stage-{stage}.onnx"
    export_module(module, path, inputs=inputs, shapes=shapes, outputs=["logits"] if last else ["logits", "hidden_out"])
    return path


def export_module(
    module: nn.Module,
    path: Path,
    *,
    inputs: Mapping[str, Tensor],
    shapes: Mapping[str, Mapping[int, Dim]],
    outputs: Sequence[str],
) -> None:
    """Write `module` as the graph `path`.

    `inputs` are examples by name, `shapes` their dynamic dimensions, and `outputs` names. Weights of more than
    `INLINE_BYTES` are written to `<path>.data`, which the graph names.
    """
    # The exporter's warnings are about its own internals (copyreg, deprecated pytree names, torchvision) only.
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            module.eval(),
            kwargs=dict(inputs),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_shapes={name: dict(dimensions) for name, dimensions in shapes.items()},
            opset_version=OPSET,
            verbose=False,
        )
        assert program is not None, "PyTorch's exporter that uses torch.export returns the program"
        weights = (value.const_value for value in program.model.graph.initializers.values())
        size = sum(weight.nbytes for weight in weights if weight is not None)
        program.save(str(path), external_data=size > INLINE_BYTES)
    _strip(path)


def is_large(model: onnx.ModelProto) -> bool:
    """True if the weights of the graph in memory take more than `INLINE_BYTES`."""
    size: int = sum(weight.ByteSize() for weight in model.graph.initializer)
    return size > INLINE_BYTES


def save_graph(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph whose weights are in memory; those of a large graph to `<path>.data`, which the graph names."""
    onnx.save(model, path, save_as_external_data=is_large(model), location=f"{path.name}.data")


def token_inputs(longest: int) -> tuple[dict[str, Tensor], dict[str, dict[int, Dim]]]:
    """Examples of token ids, type ids and mask, `[N, S]` with S up to `longest`, and their dynamic dimensions."""
    ids = torch.ones((2, 16), dtype=torch.int64)
    inputs = {"token_ids": ids, "type_ids": torch.zeros_like(ids), "mask": torch.ones_like(ids, dtype=torch.bool)}
    dimensions = {0: Dim("pairs"), 1: Dim("tokens", max=longest)}
    return inputs, dict.fromkeys(inputs, dimensions)


def _inputs(ranker: RankingNetwork, stage: int) -> tuple[dict[str, Tensor], dict[str, dict[int, Dim]]]:
    """Examples of a stage's inputs by name, and their dynamic dimensions."""
    if stage == 0:
        return token_inputs(ranker.config.encoding.max_length)
    dimensions = {0: Dim("pairs"), 1: Dim("tokens", max=ranker.config.encoding.max_length)}
    mask = torch.ones((2, 16), dtype=torch.bool)
    hidden = torch.zeros((2, 16, ranker.config.body.hidden_size), dtype=next(ranker.parameters()).dtype)
    return {"hidden": hidden, "mask": mask}, {"hidden": dimensions, "mask": dimensions}


def _strip(path: Path) -> None:
    """Remove the exporter's stack traces from the graph, because they contain paths of the exporting machine."""
    model = onnx.load(path, load_external_data=False)
    for part in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.value_info,
        *model.graph.input,
        *model.graph.output,
    ):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.save(model, path)
