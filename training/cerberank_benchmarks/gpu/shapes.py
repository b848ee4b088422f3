"""Piece `shapes`: the rates of a network's matrix products, which are far from square, and of faster variants.

The variants are products fused with GELU, and products in FP8 with a scale for each row. PyTorch has them only as
private operators, which neither the service nor training uses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from cerberank_benchmarks.gpu.ceilings import INNER
from cerberank_benchmarks.gpu.lab import Findings, Lab, Row, Value
from cerberank_benchmarks.gpu.networks import MINI, THREE_HEADS, config_of

TEXT = (
    "The matrix products of a body's layer and of a head's keys and values, with bias: [M, K] by [K, N], in turns. "
    "fused: bias and GELU within the product, against the product and GELU in a kernel each; its difference is the "
    "largest from them, relative to the largest result. FP8: e4m3 with a scale for each row and column, bf16 results, "
    "without bias and without the time to quantise."
)
FP8 = torch.float8_e4m3fn
FORMS = ("product", "product, GELU", "fused", "FP8")


def run(lab: Lab) -> Findings:
    """A row for each network, product and number of tokens; at the end the reason if FP8 was left out."""
    reason = _unsupported(lab)
    for shape in (THREE_HEADS, MINI):
        width = config_of(lab, shape).body.hidden_size
        products = {
            "query, key, value": (width, 3 * width),
            "attention output": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
            "key and value of a head": (width, 2 * width),
        }
        for rows in lab.sizes.products:
            for name, (inner, columns) in products.items():
                row: Row = {"network": shape.name, "product": name, "M": rows, "N": columns, "K": inner}
                yield {**row, **_measured(lab, (rows, inner, columns), gelu=name == "up", fp8=not reason)}
    if reason:
        yield {"FP8 left out": reason}


def _measured(lab: Lab, size: tuple[int, int, int], *, gelu: bool, fp8: bool) -> Row:
    rows, inner, columns = size
    left, weight, bias = (
        lab.random(rows, inner, seed=1),
        lab.random(columns, inner, seed=2),
        lab.random(columns, seed=3),
    )
    scaled = weight / inner**0.5  # gives results of about 1, where GELU is not linear
    runs: dict[str, Callable[[], Tensor]] = {"product": lambda: functional.linear(left, scaled, bias)}
    if gelu:
        runs["product, GELU"] = lambda: functional.gelu(functional.linear(left, scaled, bias), approximate="tanh")
        runs["fused"] = lambda: torch.ops.aten._addmm_activation(bias, left, scaled.t(), use_gelu=True)
    if fp8:
        runs["FP8"] = _fp8_product(left, scaled)
    seconds = lab.compared(runs, inner=INNER)
    work = 2 * rows * inner * columns
    # Every row has the same columns, so that a network has one table.
    rates = {name: work / seconds[name] / 1e12 if name in seconds else "" for name in FORMS}
    row: dict[str, Value] = {f"{name}, TFLOP/s": rate for name, rate in rates.items()}
    row["fused, difference"] = _difference(runs["fused"](), runs["product, GELU"]()) if gelu else ""
    row["FP8, difference"] = _difference(runs["FP8"](), runs["product"]() - bias) if fp8 else ""
    return row


def _fp8_product(left: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    (a, a_scale), (b, b_scale) = _quantised(left), _quantised(weight)
    return lambda: torch.ops.aten._scaled_mm(a, b.t(), a_scale, b_scale.t(), out_dtype=torch.bfloat16)


def _quantised(values: Tensor) -> tuple[Tensor, Tensor]:
    """The values in FP8, and the scale of each row."""
    scale = values.float().abs().amax(dim=1, keepdim=True) / torch.finfo(FP8).max
    return (values.float() / scale).to(FP8), scale


def _difference(one: Tensor, other: Tensor) -> float:
    return float((one.float() - other.float()).abs().max() / other.float().abs().max())


def _unsupported(lab: Lab) -> str:
    """The reason that this device or PyTorch does not support FP8 products; empty if it does."""
    try:
        _fp8_product(lab.random(64, 64), lab.random(64, 64))()
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return ""
