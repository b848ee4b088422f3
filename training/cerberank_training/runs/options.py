"""Errors of settings that name the option instead of the setting."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager

from pydantic import ValidationError


@contextmanager
def named_options(names: Container[str]) -> Iterator[None]:
    """Turn an error of the block that begins with one of these settings' names into one that begins with its option.

    >>> with named_options({"max_length"}):
    ...     raise ValueError("max_length must be more than 7, not 5")
    Traceback (most recent call last):
    ValueError: --max-length must be more than 7, not 5
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(_named(f"{place} {first['msg']}, not {first['input']!r}", names)) from error
    except ValueError as error:
        raise ValueError(_named(str(error), names)) from error


def _named(message: str, names: Container[str]) -> str:
    field, space, rest = message.partition(" ")
    return f"--{field.replace('_', '-')}{space}{rest}" if field in names else message
