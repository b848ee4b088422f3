"""The ids of a run in trackers. They are stored in `tracking.json` of its folder, so that a resumed run finds them."""

from __future__ import annotations

import json
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_json

FILE = "tracking.json"


def stored_id(folder: Path, tracker: str) -> str | None:
    """The id that this tracker gave the run in `folder`; None if there is none."""
    return _ids(folder).get(tracker)


def store_id(folder: Path, tracker: str, value: str) -> None:
    """Store the id that this tracker gave the run in `folder`."""
    write_json(folder / FILE, _ids(folder) | {tracker: value})


def _ids(folder: Path) -> dict[str, str]:
    path = folder / FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
