"""How every verb reads drop ratios from its command line."""

from __future__ import annotations

import argparse

from cerberank_models.drop import RatioSchedule


def ratios(text: str) -> tuple[float, ...]:
    """One number, or one an exit, with commas: a `type` for argparse, whose error says what it takes.

    >>> ratios("0.3"), ratios("0.3,0.2")
    ((0.3,), (0.3, 0.2))
    """
    try:
        return RatioSchedule(tuple(float(part) for part in text.split(","))).ratios
    except ValueError as error:
        message = f"takes numbers of at least 0 and below 1, such as 0.3,0.3, not {text!r}"
        raise argparse.ArgumentTypeError(message) from error


def one_or_all(given: tuple[float, ...] | None) -> float | tuple[float, ...] | None:
    """A single ratio stands for every exit."""
    return given[0] if given is not None and len(given) == 1 else given
