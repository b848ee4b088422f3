"""Compares alternative ONNX Runtime operators for the parts of a layer in int8, in one thread, in turn.

An alternative is worth a change of the graphs if it is faster with an equal error; docs/decisions/0008 has the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from cerberank_benchmarks.report import Chart, Report, Value
from cerberank_benchmarks.rounds import median_seconds
from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_models.backends.onnx_session import EXACT_INT8, products_saturate

TOKENS = 48
PAIRS = 21
"""Number of pairs, for a full batch of the service, which has 1,024 tokens."""
HEAD = 32
STEP = 8 / 255
"""The quantisation step of the inputs, which have a standard deviation of 1."""
Array = NDArray[np.generic]
Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a layer, and the graphs that compute it, by name; the first one is used in int8 checkpoints."""

    name: str
    inputs: Mapping[str, Array]
    forms: Mapping[str, onnxruntime.InferenceSession]
    exact: Floats | None = None
    """The result in float32, to compute errors; None for parts without an error."""


def run(settings: BenchmarkSettings, scratch: Path) -> Report:
    """A row per part and form."""
    rows: list[dict[str, Value]] = []
    rng = np.random.default_rng(settings.seed)
    for part in parts(rng, settings.width):
        runs: dict[str, Callable[[], object]] = {
            name: partial(session.run, None, part.inputs) for name, session in part.forms.items()
        }
        for warm_up in runs.values():
            warm_up()
        seconds = median_seconds(runs, rounds=5 * settings.rounds, label=part.name)
        usual = next(iter(seconds.values()))
        for name, value in seconds.items():
            row: dict[str, Value] = {
                "part": part.name,
                "form": name,
                "milliseconds": 1e3 * value,
                "times as fast": usual / value,
                "error": "",
            }
            if part.exact is not None:
                (got,) = part.forms[name].run(None, part.inputs)
                row["error"] = float(np.sqrt(((got - part.exact) ** 2).mean() / (part.exact**2).mean()))
            rows.append(row)
    return Report(
        name="operators",
        text=f"{PAIRS} pairs of {TOKENS} tokens, width {settings.width}, one thread; error: root mean square as a "
        "share of the result's.",
        rows=rows,
        chart=Chart(
            kind="bars",
            places=[f"{row['part']}: {row['form']}" for row in rows],
            series={"times as fast": [float(str(row["times as fast"])) for row in rows]},
            place_label="part and form",
            value_label="times as fast as the int8 form",
        ),
    )


def parts(rng: np.random.Generator, width: int) -> list[Part]:
    """The products of the feed-forward, attention with its projections, the activation, and the rounding of inputs."""
    inner = 4 * width
    mask = np.ones((PAIRS, TOKENS), dtype=np.int32)
    mask[::2, -3:] = 0
    hidden = rng.normal(size=(PAIRS, TOKENS, width)).astype(np.float32)
    wide = rng.normal(size=(PAIRS, TOKENS, inner)).astype(np.float32)
    activations = {
        "Gelu": [helper.make_node("Gelu", ["x"], ["y"])],
        "FastGelu (tanh)": [_own("FastGelu", ["x"], ["y"])],
        "QuickGelu (sigmoid)": [_own("QuickGelu", ["x"], ["y"])],
    }
    by_channel: dict[str, Array] = {
        "s": np.full(inner, STEP, dtype=np.float32),
        "z": np.full(inner, 128, dtype=np.uint8),
    }
    one = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], axis=-1)
    smooth, rounded = _quantise("y")
    return [
        _product(rng, hidden, inner, "the first product"),
        _product(rng, wide, width, "the second product"),
        _attention(rng, hidden, mask),
        Part(
            name="activation",
            inputs={"x": wide},
            forms={name: _session(nodes, {}, {"x": wide}) for name, nodes in activations.items()},
        ),
        Part(
            name="smoothing and rounding",
            inputs={"x": wide},
            forms={
                "Mul, QuantizeLinear": _session(
                    [smooth, rounded], _quantised_inputs(inner), {"x": wide}, TensorProto.UINT8
                ),
                "QuantizeLinear with a scale for each channel": _session(
                    [one], by_channel, {"x": wide}, TensorProto.UINT8
                ),
            },
        ),
    ]


def _product(rng: np.random.Generator, x: Floats, outputs: int, name: str) -> Part:
    """A product of uint8 and int8 with fixed scales, and block-quantised weights with dynamically quantised inputs."""
    inputs = x.shape[-1]
    weight = (rng.normal(size=(inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
    scale = np.abs(weight).max(axis=0) / 127
    fixed = _quantised_inputs(inputs) | {
        "w": np.round(weight / scale).astype(np.int8),
        "scales": scale.astype(np.float32),
        "b": np.zeros(outputs, dtype=np.float32),
    }
    nodes = [*_quantise(), _own("MatMulIntegerToFloat", ["q", "w", "s", "scales", "z", "", "b"], ["y"])]
    forms = {"MatMulIntegerToFloat": _session(nodes, fixed, {"x": x})}
    for bits in (8, 4):
        forms[f"MatMulNBits of {bits} bits, blocks of 128"] = _blocks(weight, bits, 128, {"x": x})
    return Part(name=name, inputs={"x": x}, forms=forms, exact=x @ weight)


def _blocks(weight: Floats, bits: int, block: int, inputs: Mapping[str, Array]) -> onnxruntime.InferenceSession:
    width, outputs = weight.shape
    cut = weight.T.reshape(outputs, width // block, block)
    half = 2 ** (bits - 1)
    scale = np.abs(cut).max(axis=-1) / (half - 1)
    whole = (np.round(cut / scale[..., None]) + half).astype(np.uint8)
    stored = whole if bits == 8 else whole[..., ::2] | (whole[..., 1::2] << 4)
    shape = {"K": width, "N": outputs, "bits": bits, "block_size": block, "accuracy_level": 4}  # int8 products
    node = _own("MatMulNBits", ["x", "w", "s"], ["y"], **shape)
    return _session([node], {"w": stored, "s": scale.astype(np.float32)}, inputs)


def _attention(rng: np.random.Generator, x: Floats, mask: NDArray[np.int32]) -> Part:
    """Three forms: three products and attention, one product and attention, and a single operator for everything."""
    width = x.shape[-1]
    weights = [(rng.normal(size=(width, width)) / np.sqrt(width)).astype(np.float32) for _ in range(3)]
    scales = [(np.abs(weight).max(axis=0) / 127).astype(np.float32) for weight in weights]
    whole = [np.round(weight / scale).astype(np.int8) for weight, scale in zip(weights, scales, strict=True)]
    bias = np.zeros(width, dtype=np.float32)
    heads = {"num_heads": width // HEAD}
    three, nodes = _quantised_inputs(width) | {"b": bias}, _quantise()
    for number in range(3):
        three |= {f"w{number}": whole[number], f"s{number}": scales[number]}
        nodes.append(_own("MatMulIntegerToFloat", ["q", f"w{number}", "s", f"s{number}", "z", "", "b"], [f"p{number}"]))
    mixed = _own("MultiHeadAttention", ["p0", "p1", "p2", "", "mask"], ["y"], **heads)
    joint = _quantised_inputs(width) | {
        "w": np.concatenate(whole, axis=1),
        "scales": np.concatenate(scales),
        "b": np.tile(bias, 3),
    }
    split = [
        *_quantise(),
        _own("MatMulIntegerToFloat", ["q", "w", "s", "scales", "z", "", "b"], ["p"]),
        helper.make_node("Split", ["p"], ["p0", "p1", "p2"], axis=2, num_outputs=3),
        mixed,
    ]
    fused = [*_quantise(), _own("QAttention", ["q", "w", "b", "s", "scales", "mask", "z"], ["y"], **heads)]
    inputs: dict[str, Array] = {"x": x, "mask": mask}
    return Part(
        name="attention with its projections",
        inputs=inputs,
        forms={
            "three products, MultiHeadAttention": _session([*nodes, mixed], three, inputs),
            "one product, MultiHeadAttention": _session(split, joint, inputs),
            "QAttention": _session(fused, joint, inputs),
        },
    )


def _quantised_inputs(width: int) -> dict[str, Array]:
    return {"inverse": np.ones(width, dtype=np.float32), "s": np.float32(STEP), "z": np.uint8(128)}  # type: ignore[dict-item]


def _quantise(rounded: str = "q") -> list[onnx.NodeProto]:
    """The nodes for smoothing and rounding, as in `convert/int8.py`."""
    return [
        helper.make_node("Mul", ["x", "inverse"], ["smooth"]),
        helper.make_node("QuantizeLinear", ["smooth", "s", "z"], [rounded]),
    ]


def _own(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: int) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, domain="com.microsoft", **attributes)


def _session(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    inputs: Mapping[str, Array],
    output: int = TensorProto.FLOAT,
) -> onnxruntime.InferenceSession:
    kinds = {name: helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "part",
        [
            helper.make_tensor_value_info(name, kind, ["n", "s", inputs[name].shape[-1]][: inputs[name].ndim])
            for name, kind in kinds.items()
        ],
        [helper.make_tensor_value_info("y", output, None)],
        initializer=[numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=10
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_mem_pattern = False
    options.add_session_config_entry(EXACT_INT8, "1" if products_saturate() else "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
