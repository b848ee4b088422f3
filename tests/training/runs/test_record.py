"""The record of a run: what binds it, what may change, and that it survives its process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cerberank_models.checkpoint.bound import BoundError
from cerberank_training.runs.record import RECORD, RunError, RunRecord, open_record, read_record

BOUND: dict[str, Any] = {
    "base": {"sha256": {"config.json": "a" * 64, "model.safetensors": "b" * 64}},
    "settings": {"train": {"seed": 1}, "exits": [{"after": 2}, {"after": 4}]},
    "teachers": [{"revision": "c"}],
}
FREE = {"steps": 10, "patience": None, "names": {"base": "here"}}


def opened(out: Path, *, bound: dict[str, Any] = BOUND, begun: bool = True, **free: Any) -> RunRecord:
    return open_record(out, "distil", bound=bound, free=FREE | free, software={"python": "3"}, begun=begun)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    opened(tmp_path, begun=False).write(tmp_path)
    return tmp_path


def changed(path: str, value: Any) -> dict[str, Any]:
    """BOUND with another value at a dotted place."""
    bound = json.loads(json.dumps(BOUND))
    inner, (*places, last) = bound, path.split(".")
    for place in places:
        inner = inner[int(place) if place.isdecimal() else place]
    inner[last] = value
    return bound


def test_what_may_change_is_written_down_with_its_call(out: Path) -> None:
    """Files that were renamed are the same; more steps and more patience are the second call's."""
    moved = changed("base.sha256", {"other.json": "a" * 64, "weights": "b" * 64})
    record = opened(out, bound=moved, steps=20, patience=3, names={"base": "there"})
    names = ({"base": "here"}, {"base": "there"})
    assert [call.changed for call in record.calls] == [{}, {"steps": (10, 20), "patience": (None, 3), "names": names}]
    assert (record.planned["steps"], record.free["steps"]) == (10, 20)
    record.write(out)
    assert read_record(out) == record


def test_the_digest_is_of_what_decides_about_the_result(out: Path) -> None:
    """Other content, settings and steps have another; names and devices have none of their own."""
    digest = opened(out).digest
    assert opened(out, names={"base": "there"}).digest == digest
    assert opened(out, steps=20).digest != digest
    places = ("settings.train.seed", "base.x")
    others = {opened(out / place, bound=changed(place, 9), begun=False).digest for place in places}
    assert len({digest, *others}) == 3


def test_steps_only_grow(out: Path) -> None:
    """A run cannot forget what it has learnt."""
    with pytest.raises(RunError, match="steps 10, not 9: steps may only grow"):
        opened(out, steps=9)


def test_when_a_run_has_ended(out: Path) -> None:
    """By its steps: more steps go on. For want of gain: only with more patience."""
    by_steps = opened(out).with_results(reached=10, best=50.0, questions=3)
    assert by_steps.ended
    by_steps.write(out)
    assert not opened(out, steps=20, patience=1).ended
    stopped = opened(out, steps=20, patience=2).with_results(reached=15, best=50.0, questions=3)
    stopped.write(out)
    assert opened(out, steps=20, patience=2).ended
    assert not opened(out, steps=20, patience=3).ended
    assert not opened(out, steps=20).ended
    with pytest.raises(RunError, match="ended after 15 steps because 2 evaluations had no gain"):
        _ = opened(out, steps=30, patience=2).ended


def test_a_folder_of_another_run_is_refused(out: Path) -> None:
    """A record of another verb, a missing one, one that cannot be read; also before anything else was saved."""
    with pytest.raises(RunError, match="holds a run of `cerberank train distil`"):
        open_record(out, "teach", bound=BOUND, free=FREE, software={}, begun=True)
    with pytest.raises(BoundError, match=r"was begun with settings\.train\.seed 1, not 2"):
        opened(out, bound=changed("settings.train.seed", 2), begun=False)
    assert opened(out, begun=False).is_repeated
    (out / RECORD).write_text("{")
    with pytest.raises(RunError, match=r"record\.json: content: Invalid JSON"):
        opened(out)
    (out / RECORD).unlink()
    with pytest.raises(RunError, match=r"holds a run without record\.json"):
        opened(out)
