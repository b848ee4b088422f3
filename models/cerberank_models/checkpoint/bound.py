"""A folder that is filled in several calls: all of them must have the settings that decide about its content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.regular import read_regular

SETTINGS = "settings.json"
SHA256 = "sha256"
"""The key of digests by file name among settings: contents are compared, names of files are not."""
SHORT = 8
"""Characters of a digest that people are shown."""
ANEW = "choose another folder, or remove this one"


class BoundError(ValueError):
    """The folder was begun otherwise; the message names every setting that differs, with both values."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A folder with the settings of the calls that fill it."""

    folder: Path
    settings: Mapping[str, Any]

    def begin(self, file: str = SETTINGS) -> None:
        """Write the settings into `file` of the folder, or compare those that an earlier call wrote.

        Raises BoundError when they differ.
        """
        path = self.folder / file
        if path.exists():
            self.refuse_other_than(json.loads(read_regular(path)))
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, plain(self.settings))

    def refuse_other_than(self, old: Mapping[str, Any]) -> None:
        """Raise BoundError unless the folder was begun with these settings."""
        if lines := [difference(*row) for row in differences(plain(old), plain(self.settings))]:
            raise BoundError(f"{self.folder} was begun with {'; '.join(lines)}; {ANEW}")

    def finish(self) -> None:
        """Remove the folder, whose content is elsewhere by now."""
        shutil.rmtree(self.folder)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values as JSON reads them back."""
    read: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return read


def differences(old: Any, new: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every field that differs, by its dotted name, with both values; contents by their files' digests alone."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            inner = f"{field}.{name}" if field else name
            if name == SHA256:
                one, two = old.get(name, {}), new.get(name, {})
                if sorted(one.values()) != sorted(two.values()):
                    yield inner, one, two
                continue
            yield from differences(old.get(name), new.get(name), inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, two) in enumerate(zip(old, new, strict=True), start=1):
            yield from differences(one, two, f"{field}.{number}")
    elif old != new:
        yield field, old, new


def difference(field: str, old: Any, new: Any) -> str:
    """One of `differences` in words."""
    if not field.endswith(SHA256) or not isinstance(old, dict) or not isinstance(new, dict):
        return f"{field} {old!r}, not {new!r}"
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    files = [f"{name} {_short(old.get(name))}, now {_short(new.get(name))}" for name in names]
    return f"other content of {field.removesuffix(f'.{SHA256}')} (SHA-256: {'; '.join(files)})"


def _short(digest: str | None) -> str:
    return digest[:SHORT] if digest else "absent"
