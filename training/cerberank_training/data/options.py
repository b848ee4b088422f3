"""The options that follow a path: `FORMAT:PATH?key=value&key=value`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from cerberank_models.transformer import Frozen
from cerberank_training.data.question import DataError

OptionsT = TypeVar("OptionsT", bound=Frozen)


def parse_options(model: type[OptionsT], name: str, path: Path) -> tuple[Path, OptionsT]:
    """The path before the question mark and the options after it. Raises DataError for an unknown or wrong option."""
    place, _, given = str(path).partition("?")
    # Options are not decoded as in a URL, because runs have names such as bm25+rm3.
    pairs = [pair.split("=", 1) for pair in given.split("&") if pair]
    if any(len(pair) < 2 for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise DataError(f"{name}:{path}: expected key=value&key=value, each key once")
    try:
        return Path(place), model.model_validate(dict(pairs))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise DataError(
                f"{name}:{path}: {name} has no option {first['loc'][0]!r}; it has {', '.join(model.model_fields)}"
            ) from error
        field = ".".join(map(str, first["loc"])) or "options"
        raise DataError(f"{name}:{path}: {field}: {first['msg']}") from error
