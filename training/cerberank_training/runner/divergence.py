"""Ends a training whose numbers are no longer finite, before it saves weights that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Mapping


class DivergenceError(ValueError):
    """A loss, a gradient or a score is infinite or not a number. The message names step, rate and remedy."""

    def __init__(self, what: str, *, step: int, rate: float) -> None:
        """`what` is a clause such as `the loss is nan`; `rate` is the learning rate of the step."""
        super().__init__(
            f"{what} in step {step}, with learning rate {rate:g}: training has diverged, and nothing of this step is "
            "saved. The same settings lead here again: begin in another folder with a lower --learning-rate"
        )


def check_finite(figures: Mapping[str, float], *, step: int, rate: float) -> None:
    """Raise DivergenceError for the first of the figures that is not finite."""
    for name, value in figures.items():
        if not math.isfinite(value):
            raise DivergenceError(f"the {name} is {value}", step=step, rate=rate)
