"""A folder that several calls of a command fill, bound to the settings of the first call.

All calls must have the same values of the settings that determine the folder's content.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.regular import read_regular
from cerberank_models.checkpoint.renamed import new_name

SETTINGS = "settings.json"
SHA256 = "sha256"
"""The key of a table of digests by file name within settings. Digests are compared, but names of files are not."""
SHORT = 8
"""The number of a digest's characters in messages."""
ANEW = "choose another folder, or remove this one"


class BoundError(ValueError):
    """The folder was begun with other settings; the message names every setting that differs, with both values."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A folder with the settings of the calls that fill it."""

    folder: Path
    settings: Mapping[str, Any]

    def begin(self, file: str = SETTINGS) -> None:
        """Write the settings to `file` in the folder, or compare them with those that an earlier call wrote.

        Raises BoundError if they differ.
        """
        path = self.folder / file
        if path.exists():
            self.refuse_other_than(json.loads(read_regular(path)))
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(path, plain(self.settings))

    def refuse_other_than(self, old: Mapping[str, Any]) -> None:
        """Raise BoundError unless the folder was begun with these settings."""
        new = plain(self.settings)
        if lines := [difference(*row) for row in differences(_renamed(plain(old), new), new)]:
            raise BoundError(f"{self.folder} was begun with {'; '.join(lines)}; {ANEW}")

    def finish(self) -> None:
        """Remove the folder, after its content was moved elsewhere."""
        shutil.rmtree(self.folder)


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values after writing them to JSON and reading them again, so that they compare equal to a read file."""
    read: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return read


def _renamed(old: Any, new: Any) -> Any:
    """The settings `old` with the names that `new` has for them, where an earlier version had others."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old
    names = {name: name if name in new else new_name(name, new) or name for name in old}
    return {names[name]: _renamed(value, new.get(names[name])) for name, value in old.items()}


def differences(old: Any, new: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every field that differs, by its dotted name, with both values. Files are compared by their digests only."""
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
    """A description of one item of `differences`."""
    if not field.endswith(SHA256) or not isinstance(old, dict) or not isinstance(new, dict):
        return f"{field} {old!r}, not {new!r}"
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    files = [f"{name} {_short(old.get(name))}, now {_short(new.get(name))}" for name in names]
    return f"other content of {field.removesuffix(f'.{SHA256}')} (SHA-256: {'; '.join(files)})"


def _short(digest: str | None) -> str:
    return digest[:SHORT] if digest else "absent"
