from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.state import ModelState, Snapshot, State, VersionState


def live(*, alive: bool = True, device_failed: bool = False) -> LiveVersion:
    return cast(LiveVersion, SimpleNamespace(engine=SimpleNamespace(alive=alive, device_failed=device_failed)))


def ready(*, alive: bool = True) -> VersionState:
    return VersionState(status=State.READY, size=1, live=live(alive=alive))


def snapshot(*, alive: bool = True, **fields: Any) -> Snapshot:
    model = ModelState(versions={"1": ready(alive=alive)}, serving={"stable": "1"})
    return Snapshot(**{"models": {"m": model}, "started_up": True} | fields)


@pytest.mark.parametrize(
    ("known", "state", "broken"),
    [
        (Snapshot(), State.LOADING, False),
        (Snapshot(started_up=True), State.FAILED, False),
        (snapshot(), State.READY, False),
        (snapshot(started_up=False), State.LOADING, False),
        (snapshot(draining=True), State.DRAINING, False),
        (snapshot(alive=False), State.FAILED, True),
        (snapshot(device_failed=True), State.FAILED, True),
        (snapshot(stopped=True), State.STOPPED, False),
        (snapshot(device_failed=True, stopped=True), State.STOPPED, False),
        (snapshot(alive=False, stopped=True), State.STOPPED, False),
    ],
)
def test_the_services_state_follows_from_the_snapshot(known: Snapshot, state: State, broken: bool) -> None:
    """Ready only while every stable engine runs; a process that stops is not broken."""
    assert (known.state, known.broken) == (state, broken)


def test_one_dead_stable_engine_makes_the_service_fail() -> None:
    """Another model that is well does not hide it."""
    well = snapshot().with_model("n", ModelState(versions={"2": ready(alive=False)}, serving={"stable": "2"}))
    assert (well.state, well.broken) == (State.FAILED, True)


@pytest.mark.parametrize("device_failed", [False, True])
def test_a_device_that_failed_in_any_version_makes_the_service_fail(device_failed: bool) -> None:
    """A shadow's own failure concerns nobody else; that of its device concerns the whole process."""
    shadow = VersionState(status=State.READY, size=1, live=live(alive=False, device_failed=device_failed))
    known = snapshot().with_version(Reference("m", "2"), shadow)
    assert (known.state is State.READY, known.broken) == (not device_failed, device_failed)


def test_a_change_makes_a_new_snapshot_and_leaves_the_old_one() -> None:
    """Readers that hold a snapshot see no half of a change."""
    before = snapshot()
    after = before.with_version(Reference("m", "2"), VersionState(status=State.LOADING, size=7))
    assert before.version(Reference("m", "2")) is None
    assert after.version(Reference("m", "2")) == VersionState(status=State.LOADING, size=7)
    assert after.model("m").ready == ["1"]


def test_a_model_without_versions_and_pins_is_forgotten() -> None:
    """A pin keeps it known: it is to be loaded."""
    gone = Snapshot(models={"m": ModelState(versions={"1": ready()})}).with_version(Reference("m", "1"), None)
    assert gone.models == {}
    pinned = ModelState(versions={"1": ready()}, pinned=frozenset({"1"}))
    assert "m" in Snapshot(models={"m": pinned}).with_version(Reference("m", "1"), None).models


def test_stable_and_shadow_are_two_versions_or_none() -> None:
    """A shadow that is the stable version itself has nothing to be compared to."""
    versions = {"1": ready(), "2": ready()}
    both = ModelState(versions=versions, serving={"stable": "1", "shadow": "2"})
    same = ModelState(versions=versions, serving={"stable": "1", "shadow": "1"})
    known = Snapshot(models={"both": both, "same": same})
    assert known.stable_and_shadow("both") == (versions["1"].live, versions["2"].live)
    assert known.stable_and_shadow("same") is None
    assert known.stable_and_shadow("unknown") is None
    assert ("both", "shadow", "2") in known.labels()
