"""A folder that several calls fill takes calls with the same settings alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cerberank_models.checkpoint.bound import Bound, BoundError

SETTINGS: dict[str, Any] = {
    "base": {"sha256": {"config.json": "a" * 64, "model.safetensors": "b" * 64}},
    "settings": {"train": {"seed": 1}, "exits": [{"after": 2}, {"after": 4}]},
    "teachers": [{"revision": "c"}],
    "mono": Path("a"),
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """SETTINGS with another value at a dotted place."""
    settings = json.loads(json.dumps(SETTINGS, default=str))
    inner, (*places, last) = settings, path.split(".")
    for place in places:
        inner = inner[int(place) if place.isdecimal() else place]
    inner[last] = value
    return dict(settings)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("settings.train.seed", 2, "settings.train.seed 1, not 2"),
        ("settings.exits.1.after", 5, "settings.exits.2.after 4, not 5"),
        ("settings.exits", [], r"settings.exits \[{'after': 2}, {'after': 4}\], not \[\]"),
        ("settings.new", "x", "settings.new None, not 'x'"),
        ("mono", None, "mono 'a', not None"),
        ("teachers.0.revision", "d", "teachers.1.revision 'c', not 'd'"),
        (
            "base.sha256",
            {"config.json": "a" * 64, "model.safetensors": "d" * 64},
            r"other content of base \(SHA-256: model.safetensors bbbbbbbb, now dddddddd\)",
        ),
        (
            "base.sha256",
            {"config.json": "a" * 64},
            r"other content of base \(SHA-256: model.safetensors bbbbbbbb, now absent\)",
        ),
    ],
)
def test_a_setting_that_differs_is_named_with_both_values(place: str, value: Any, message: str, tmp_path: Path) -> None:
    """The folder keeps the settings that it was begun with."""
    Bound(tmp_path / "out", SETTINGS).begin()
    with pytest.raises(BoundError, match=f"{tmp_path / 'out'} was begun with {message}; choose another folder"):
        Bound(tmp_path / "out", changed(place, value)).begin()
    Bound(tmp_path / "out", SETTINGS).begin()


def test_every_difference_is_named(tmp_path: Path) -> None:
    """A rate that follows from another one is not named alone."""
    Bound(tmp_path, SETTINGS).begin()
    other = changed("settings.train.seed", 2) | {"base": changed("base.x", 9)["base"]}
    with pytest.raises(BoundError, match=r"begun with base\.x .*, not 9; settings\.train\.seed 1, not 2; choose"):
        Bound(tmp_path, other).begin()


def test_the_names_of_files_do_not_bind(tmp_path: Path) -> None:
    """Files that were renamed have the same content."""
    Bound(tmp_path, SETTINGS).begin()
    Bound(tmp_path, changed("base.sha256", {"other.json": "a" * 64, "weights": "b" * 64})).begin()


def test_a_finished_folder_is_removed(tmp_path: Path) -> None:
    bound = Bound(tmp_path / "out", SETTINGS)
    bound.begin()
    bound.finish()
    assert not (tmp_path / "out").exists()
