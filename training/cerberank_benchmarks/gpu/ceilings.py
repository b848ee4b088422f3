"""Piece `ceilings`: the device's rates for pure matrix products and for pure copying."""

from __future__ import annotations

import torch

from cerberank_benchmarks.gpu.lab import Findings, Lab, Row
from cerberank_benchmarks.machine import gpu_clocks

TEXT = (
    "A square matrix product on normal random numbers, and a copy within the device's memory (bytes read and "
    "written). Shares of the matmul rate in other pieces refer to this product, measured again beside them."
)
INNER = 10
"""Number of calls that are timed together."""


def run(lab: Lab) -> Findings:
    """A row for each half precision, and one for the copy; the clocks are read just after the measurement."""
    for dtype in (torch.float16, torch.bfloat16):
        rate = matmul_rate(lab, dtype)
        size = lab.sizes.matmul
        yield _row(lab, f"{size}^3 {str(dtype).removeprefix('torch.')}", rate / 1e12, "TFLOP/s")
    source = lab.random(lab.sizes.copy_bytes // 4, dtype=torch.float32)
    target = torch.empty_like(source)
    seconds = lab.seconds(lambda: target.copy_(source), inner=INNER)
    moved = 2 * source.numel() * source.element_size()
    yield _row(lab, "copy", moved / seconds / 1e12, "TB/s")


def matmul_rate(lab: Lab, dtype: torch.dtype | None = None) -> float:
    """Floating-point operations per second of a square product in `dtype`, by default the lab's."""
    size = lab.sizes.matmul
    left, right = (lab.random(size, size, dtype=dtype, seed=seed) for seed in (1, 2))
    out = torch.empty_like(left)
    return 2 * size**3 / lab.seconds(lambda: torch.mm(left, right, out=out), inner=INNER)


def _row(lab: Lab, name: str, rate: float, unit: str) -> Row:
    return {"of": name, "rate": rate, "unit": unit, "clocks after": gpu_clocks(lab.device) or "unknown"}
