"""A format of data: how the questions of `FORMAT:PATH?key=value&key=value` are read, and from which files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from cerberank_models.transformer import Frozen
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, Question
from cerberank_training.data.source_files import named_files, source_files

OptionsT = TypeVar("OptionsT", bound=Frozen)


class NoOptions(Frozen):
    """The options of a format that has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Format(Generic[OptionsT]):
    """A format by its name, with the options that may follow a path."""

    name: str
    options: type[OptionsT]
    read: Callable[[Path, OptionsT, Notes], Iterable[Question]]
    """Reads the questions of a path, and counts in the notes what it ignores."""
    files: Callable[[Path, OptionsT], Iterable[Path]] = lambda place, options: source_files(place)
    """Lists the files that `read` reads. Raises DataError for a folder that lacks a file."""
    documents: Callable[[Path, OptionsT], Iterator[tuple[str, str]]] | None = None
    """Reads the id and text of every document of a collection; None for a format that has only candidates."""
    streamed: bool = False
    """True if `read` holds only one question at a time in memory."""

    def parse(self, path: Path) -> tuple[Path, OptionsT]:
        """The path before the question mark and the options after it. Raises DataError."""
        return parse_options(self.options, self.name, path)

    def named_files(self, path: Path) -> dict[str, Path]:
        """The files of `PATH?key=value`, by names without folders of this machine. Raises DataError."""
        place, options = self.parse(path)
        return named_files(place if place.is_dir() else place.parent, self.files(place, options))


def without_options(name: str, read: Callable[[Path], Iterable[Question]]) -> Format[NoOptions]:
    """A format that is only a path, and whose reader ignores nothing."""
    return Format(name=name, options=NoOptions, read=lambda path, options, notes: read(path))


def parse_options(model: type[OptionsT], name: str, path: Path) -> tuple[Path, OptionsT]:
    """The path before the question mark and the options after it. Raises DataError for an unknown or wrong option."""
    place, _, text = str(path).partition("?")
    # Options are not decoded as in a URL, because runs have names such as bm25+rm3.
    pairs = [pair.split("=", 1) for pair in text.split("&") if pair]
    if any(len(pair) < 2 for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
        raise DataError(f"{name}:{path}: expected key=value&key=value, each key once")
    try:
        return Path(place), model.model_validate(dict(pairs))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            known = ", ".join(model.model_fields) or "none"
            raise DataError(f"{name}:{path}: {name} has no option {first['loc'][0]!r}; it has {known}") from error
        field = ".".join(map(str, first["loc"])) or "options"
        raise DataError(f"{name}:{path}: {field}: {first['msg']}") from error
