"""The record of a run: what binds it, what may change, and that it survives its process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from cerberank_models.checkpoint.bound import BoundError
from cerberank_training.runs.record import LARGEST, RECORD, RunError, TrainingRun, open_run, read_record

BOUND: dict[str, Any] = {
    "base": {"sha256": {"config.json": "a" * 64, "model.safetensors": "b" * 64}},
    "settings": {"train": {"seed": 1}, "exits": [{"after": 2}, {"after": 4}]},
    "teachers": [{"revision": "c"}],
}
FREE = {"steps": 10, "patience": None, "names": {"base": "here"}}


def opened(out: Path, verb: str = "distil", *, bound: Any = BOUND, saved: bool = True, **free: Any) -> TrainingRun:
    return open_run(out, verb, result=out / "result", bound=bound, free=FREE | free, is_saved=saved)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    opened(tmp_path, saved=False).begin()
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
    run = opened(out, bound=moved, steps=20, patience=3, names={"base": "there"})
    record = run.record
    names = ({"base": "here"}, {"base": "there"})
    assert [call.changed for call in record.calls] == [{}, {"steps": (10, 20), "patience": (None, 3), "names": names}]
    assert (record.planned["steps"], record.free["steps"]) == (10, 20)
    run.begin()
    assert read_record(out) == record


def test_a_record_with_earlier_names_goes_on(tmp_path: Path) -> None:
    """A setting with another value is named by its new name, and the record keeps its digest."""
    old = {"settings": {"sampling": {"own": 9, "seed": 1}}}
    begun = opened(tmp_path, bound=old, saved=False)
    begun.begin()
    run = opened(tmp_path, bound={"settings": {"sampling": {"negatives": 9, "seed": 1}}})
    assert run.record.digest == begun.record.digest
    with pytest.raises(BoundError, match=r"was begun with settings.sampling.negatives 9, not 8;"):
        opened(tmp_path, bound={"settings": {"sampling": {"negatives": 8, "seed": 1}}})


def test_a_run_of_an_earlier_version_is_refused(out: Path) -> None:
    """The records of 0.1.0 do not name the result."""
    record = json.loads((out / RECORD).read_text())
    (out / RECORD).write_text(json.dumps({name: value for name, value in record.items() if name != "result"}))
    with pytest.raises(RunError, match=r"holds a run of version 0\.1\.0, which this version cannot continue; choose"):
        opened(out)


def test_the_digest_is_of_what_decides_about_the_result(out: Path) -> None:
    """Other content, settings and steps have another; names and devices have none of their own."""
    digest = opened(out).record.digest
    assert opened(out, names={"base": "there"}).record.digest == digest
    assert opened(out, steps=20).record.digest != digest
    places = ("settings.train.seed", "base.x")
    others = {opened(out / place, bound=changed(place, 9), saved=False).record.digest for place in places}
    assert len({digest, *others}) == 3


def test_steps_only_grow(out: Path) -> None:
    """A run cannot forget what it has learnt."""
    with pytest.raises(RunError, match="steps 10, not 9: steps may only grow"):
        opened(out, steps=9)


def test_when_a_run_has_ended(out: Path) -> None:
    """By its steps: more steps go on. For want of gain: only with more patience."""
    assert opened(out).finish(reached=10, best=50.0, questions=3).ended
    assert not opened(out, steps=20, patience=1).record.ended
    assert opened(out, steps=20, patience=2).finish(reached=15, best=50.0, questions=3).ended
    assert opened(out, steps=20, patience=2).record.ended
    assert not opened(out, steps=20, patience=3).record.ended
    assert not opened(out, steps=20).record.ended
    with pytest.raises(RunError, match="ended after 15 steps because 2 evaluations had no gain"):
        _ = opened(out, steps=30, patience=2).record.ended


def test_a_finished_run_is_extended_from_its_saved_state(out: Path) -> None:
    """Without the state, more steps would begin anew. The earlier result is moved aside, by the digest of its run."""
    first = opened(out)
    first.finish(reached=10, best=50.0, questions=3)
    assert not opened(out).is_finished
    (out / "result").mkdir()
    assert opened(out, saved=False).is_finished
    with pytest.raises(RunError, match="has no saved state"):
        _ = opened(out, saved=False, steps=20).is_finished
    more = opened(out, steps=20)
    assert not more.is_finished
    more.finish(reached=20, best=60.0, questions=3)
    assert (out / f"result-{first.record.digest}").is_dir()


@pytest.mark.parametrize("write", [Path.mkdir, Path.touch])
def test_a_run_that_is_killed_while_it_finishes_is_repeated(
    write: Callable[[Path], None], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier result, a folder or a file, is out of the way before the record names another one."""
    opened(out).finish(reached=10, best=50.0, questions=3)
    write(out / "result")
    before = (out / RECORD).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("cerberank_training.runs.record.write_json", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            opened(out, steps=20).finish(reached=20, best=60.0, questions=3)
    assert not (out / "result").exists()
    assert (out / RECORD).read_bytes() == before
    assert not opened(out, steps=20).is_finished


def test_a_repeated_call_says_from_where_it_goes_on(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the saved state, or anew without one. Of several processes, the first one writes the line."""
    opened(out, saved=False).begin("", "a line")
    start = "cerberank train distil: "
    nothing = f"{start}the run was begun before, and nothing saved yet: from step 0"
    assert capsys.readouterr().err.splitlines() == [nothing, f"{start}a line"]
    opened(out).begin("")
    assert capsys.readouterr().err == f"{start}the run was begun before, and continues from its saved state\n"
    monkeypatch.setenv("RANK", "1")
    opened(out / "other", saved=False).begin("a line")
    opened(out / "other", saved=False).finish(reached=10, best=1.0)
    assert capsys.readouterr().err == ""
    assert not (out / "other").exists()


def test_a_folder_of_another_run_is_refused(out: Path) -> None:
    """A record of another verb, a missing one, one that cannot be read; also before anything else was saved."""
    with pytest.raises(RunError, match="holds a run of `cerberank train distil`"):
        opened(out, "teach")
    with pytest.raises(BoundError, match=r"was begun with settings\.train\.seed 1, not 2"):
        opened(out, bound=changed("settings.train.seed", 2), saved=False)
    (out / RECORD).write_text("{")
    with pytest.raises(RunError, match=r"record\.json: content: Invalid JSON"):
        opened(out)
    with (out / RECORD).open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(RunError, match=r"record\.json has more than \d+ bytes"):
        opened(out)
    (out / RECORD).unlink()
    with pytest.raises(RunError, match=r"holds a run without record\.json"):
        opened(out)
    (out / "result").mkdir()
    with pytest.raises(RunError, match=r"holds a run without record\.json"):
        opened(out, saved=False)
