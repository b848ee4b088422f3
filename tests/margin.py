"""A drop policy that is not a list of ratios: what plugs into the seam without a change elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Margin:
    """Keeps every candidate within `margin` of the best score; how many that will be is not known before."""

    stages: int
    margin: float
    ratios: tuple[float, ...] = ()

    def survivors(self, stage: int, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        return np.flatnonzero(scores >= scores.max() - self.margin)

    def expected_alive(self, candidates: int) -> list[float]:
        return [float(candidates)] * self.stages

    def waits(self, stage: int) -> bool:
        return True
