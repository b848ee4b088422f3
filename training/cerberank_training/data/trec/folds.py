"""Cross-validation: reads a file of folds, and divides queries into train, dev and test for each split."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_training.data.question import DataError, read_lines

Folds = tuple[tuple[str, ...], ...]
"""The ids of each fold's queries."""


@dataclass(frozen=True, slots=True)
class Split:
    """The ids of the queries for training (train), for the choice of an epoch (dev), and for the figures (test)."""

    train: tuple[str, ...]
    dev: tuple[str, ...]
    test: tuple[str, ...]


def read_folds(path: Path) -> Folds:
    """Read folds from a JSON list of lists of ids (.json, as Anserini has for Robust04), or from lines of ids.

    Raises DataError, with file and line or fold, for fewer than three folds, an empty fold, and a repeated id.
    """
    folds = _json(path) if path.suffix == ".json" else [line.split() for _, line in read_lines(path, blank=True)]
    if len(folds) < 3:
        raise DataError(f"{path}: {len(folds)} folds, and cross-validation needs three: train, dev and test")
    place: dict[str, int] = {}
    for number, fold in enumerate(folds, start=1):
        if not fold:
            raise DataError(f"{path}: fold {number} (line {number} of a text file) is empty")
        for query in fold:
            if query in place:
                raise DataError(f"{path}: query {query!r} is in fold {place[query]} and in fold {number}")
            place[query] = number
    return tuple(tuple(fold) for fold in folds)


def splits(folds: Folds) -> tuple[Split, ...]:
    """A split for each fold: split i tests on fold i, chooses on the next fold, and trains on all others.

    >>> splits((("a",), ("b",), ("c",)))[2]
    Split(train=('b',), dev=('a',), test=('c',))
    """
    count = len(folds)
    return tuple(
        Split(
            train=_joined([folds[other] for other in range(count) if other not in (test, (test + 1) % count)]),
            dev=folds[(test + 1) % count],
            test=folds[test],
        )
        for test in range(count)
    )


def _joined(folds: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(query for fold in folds for query in fold)


def _json(path: Path) -> list[list[str]]:
    try:
        content: Any = json.loads("\n".join(line for _, line in read_lines(path)))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: {error.msg}") from error
    if not isinstance(content, list) or not all(isinstance(fold, list) for fold in content):
        raise DataError(f"{path}:1: expected a list of folds, each a list of query ids")
    return [[str(query) for query in fold] for fold in content]
