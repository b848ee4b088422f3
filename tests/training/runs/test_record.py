"""The record of a run: what binds it, what may change, and that it survives its process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cerberank_models.checkpoint.bound import BoundError
from cerberank_training.runs.record import LARGEST, RECORD, RunError, TrainingRun, open_run, read_record, results_suffix

BOUND: dict[str, Any] = {
    "base": {"sha256": {"config.json": "a" * 64, "model.safetensors": "b" * 64}},
    "settings": {"train": {"seed": 1}, "exits": [{"after": 2}, {"after": 4}]},
    "teachers": [{"revision": "c"}],
    "steps": 10,
    "patience": 2,
}
FREE = {"names": {"base": "here"}, "device": "cpu"}


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
    """Files that were renamed are the same; names and the device are the second call's."""
    moved = changed("base.sha256", {"other.json": "a" * 64, "weights": "b" * 64})
    run = opened(out, bound=moved, device="cuda", names={"base": "there"})
    names = ({"base": "here"}, {"base": "there"})
    assert [call.changed for call in run.record.calls] == [{}, {"device": ("cpu", "cuda"), "names": names}]
    run.begin()
    assert read_record(out) == run.record


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
    """The records of 0.1.0 have format 1."""
    record = json.loads((out / RECORD).read_text())
    (out / RECORD).write_text(json.dumps(record | {"format": 1, "planned": {}}))
    with pytest.raises(RunError, match="holds a run of an earlier version, which this one cannot continue; choose"):
        opened(out)


def test_the_digest_is_of_what_decides_about_the_result(out: Path) -> None:
    """Other content, settings and steps have another; names and devices have none of their own."""
    digest = opened(out).record.digest
    assert opened(out, names={"base": "there"}).record.digest == digest
    places = ("settings.train.seed", "base.x", "steps")
    others = {opened(out / place, bound=changed(place, 9), saved=False).record.digest for place in places}
    assert len({digest, *others}) == 4


def test_a_run_is_finished_with_its_result(out: Path) -> None:
    """A call that was killed between both writes the result again."""
    assert not opened(out).is_finished
    opened(out).finish(reached=10, best=50.0, questions=3)
    assert not opened(out).is_finished
    (out / "result").mkdir()
    assert opened(out, saved=False).is_finished


def test_the_last_words_have_the_best_step_and_the_start(out: Path) -> None:
    """Both figures are compared as they are shown; training that ended early says why."""
    run = opened(out)
    same = run.finish(reached=10, best=275 / 3, best_step=8, start=91.6667)
    assert results_suffix(same) == " at step 8 (91.67 at step 0)"
    worse = run.finish(reached=6, best=70.0, best_step=2, start=71.5)
    assert results_suffix(worse) == (
        " at step 2 (71.50 at step 0, which is the best: training has made it worse); training ended after 6 of 10 "
        "steps, because 2 evaluations had no gain"
    )


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
