"""The ids by which trackers know a run, kept in `tracking.json` of its folder, so that a killed run is found again."""

from __future__ import annotations

import json
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_json

FILE = "tracking.json"


def known_id(folder: Path, tracker: str) -> str | None:
    """The id of the run in `folder`, if this tracker knows it."""
    return _ids(folder).get(tracker)


def keep_id(folder: Path, tracker: str, value: str) -> None:
    """Remember the id of the run in `folder`."""
    write_json(folder / FILE, _ids(folder) | {tracker: value})


def _ids(folder: Path) -> dict[str, str]:
    path = folder / FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
