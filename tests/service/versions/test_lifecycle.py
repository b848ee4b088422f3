"""The rules of `decide`, each stated once; then a service that obeys it, under any history."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.checkpoint.store.checkpoint_store import LABELS, Label, Reference
from cerberank_service.versions.lifecycle import Decision, Flip, StoredModel, decide
from cerberank_service.versions.state import ModelState, State, VersionState

READY = VersionState(status=State.READY, size=10)
A, B, C = (Reference("m", version) for version in "abc")


def stored(**labels: str) -> dict[str, StoredModel]:
    return {"m": StoredModel(labels=labels, sizes=dict.fromkeys("abcd", 10))}  # type: ignore[arg-type]


def served(versions: dict[str, VersionState], previous: str | None = None, **serving: str) -> dict[str, ModelState]:
    return {"m": ModelState(versions=versions, serving=serving, previous=previous)}  # type: ignore[arg-type]


def flip(label: Label, version: str | None) -> Flip:
    return Flip(model="m", label=label, version=version)


@pytest.mark.parametrize("status", [State.LOADING, State.UNLOADING, State.FAILED])
def test_a_label_waits_until_its_version_is_ready(status: State) -> None:
    """The old version serves on, whatever becomes of the new one; a failed one is not tried again."""
    state = served({"a": READY, "b": VersionState(status=status, size=10)}, stable="a")
    assert decide(stored(stable="b"), state, memory=100) == Decision()


def test_a_flip_keeps_the_version_that_it_leaves() -> None:
    """The previous version stays loaded for a rollback, the one before it is unloaded."""
    state = served({"a": READY, "b": READY, "c": READY}, previous="c", stable="a")
    assert decide(stored(stable="b"), state, memory=100) == Decision(flips=(flip("stable", "b"),), unload=(C,))


def test_a_rollback_is_one_flip() -> None:
    """Nothing is loaded; the version that is left is unloaded, so that no second rollback returns to it."""
    state = served({"a": READY, "b": READY}, previous="a", stable="b")
    assert decide(stored(stable="a"), state, memory=100) == Decision(flips=(flip("stable", "a"),), unload=(B,))


def test_the_first_version_is_loaded_though_nothing_serves() -> None:
    """Stable before canary before shadow, one at a time."""
    wanted = stored(shadow="c", canary="b", stable="a")
    assert decide(wanted, {}, memory=100) == Decision(load=A)
    assert decide(wanted, served({"a": VersionState(status=State.LOADING, size=10)}), memory=100) == Decision()
    assert decide(wanted, served({"a": READY}, stable="a"), memory=100) == Decision(load=B)


def test_a_store_that_cannot_be_read_changes_nothing() -> None:
    """An unreadable store changes nothing; in one that has lost the model the stable version stays."""
    state = served({"a": READY, "b": READY}, stable="a", canary="b")
    assert decide(None, state, memory=100) == Decision()
    assert decide({}, state, memory=100) == Decision(flips=(flip("canary", None),), unload=(B,))


def test_a_label_of_a_version_that_is_not_in_the_store_loads_nothing() -> None:
    """It may have been deleted by hand."""
    assert decide(stored(stable="z"), {}, memory=100) == Decision()


def test_memory_is_taken_from_the_less_important_first() -> None:
    """Shadow, then the rollback version, never canary or stable for them; the load waits until it is free."""
    full = served({"a": READY, "b": READY, "c": READY}, previous="b", stable="a", shadow="c")
    assert decide(stored(stable="d", shadow="c"), full, memory=30) == Decision(
        flips=(flip("shadow", None),), unload=(C,)
    )
    going = served(
        {"a": READY, "b": READY, "c": VersionState(status=State.UNLOADING, size=10)}, previous="b", stable="a"
    )
    assert decide(stored(stable="d", shadow="c"), going, memory=30) == Decision()
    free = served({"a": READY, "b": READY}, previous="b", stable="a")
    assert decide(stored(stable="d", shadow="c"), free, memory=30) == Decision(load=Reference("m", "d"))
    done = served({"a": READY, "d": READY, "b": READY}, previous="a", canary="b", stable="d")
    decision = decide(stored(stable="d", canary="b", shadow="c"), done, memory=30)
    assert (decision.load, decision.unload) == (None, ())
    assert "needs 10 bytes" in decision.refused[C]


def test_what_can_never_fit_is_refused_and_displaces_no_version() -> None:
    """The next label gets its turn."""
    big = {"m": StoredModel(labels={"stable": "big", "canary": "b"}, sizes={"big": 25, "b": 10})}
    decision = decide(big, served({"a": READY}, stable="a"), memory=30)
    assert (decision.load, decision.unload) == (B, ())
    assert list(decision.refused) == [Reference("m", "big")]


def test_memory_that_is_coming_back_is_waited_for() -> None:
    """A version without a role is unloaded first; the one that needs its memory is not refused."""
    big = {"m": StoredModel(labels={"stable": "big"}, sizes={"big": 25})}
    held = {"a": VersionState(status=State.READY, size=5), "c": VersionState(status=State.READY, size=20)}
    assert decide(big, served(held, stable="a"), memory=30) == Decision(unload=(C,))


def test_a_pinned_version_is_loaded_without_a_label_and_yields_memory_to_every_label_but_shadow() -> None:
    """It stays while it is pinned, as the rollback version does."""
    pinned = {"m": replace(served({"a": READY}, stable="a")["m"], pinned=frozenset({"c"}))}
    assert decide(stored(stable="a"), pinned, memory=100) == Decision(load=C)
    loaded = {"m": replace(served({"a": READY, "c": READY}, stable="a")["m"], pinned=frozenset({"c"}))}
    assert decide(stored(stable="a"), loaded, memory=100) == Decision()
    assert decide(stored(stable="a", canary="b"), loaded, memory=20) == Decision(unload=(C,))
    assert C not in decide(stored(stable="a", shadow="b"), loaded, memory=20).unload
    unpinned = {"m": replace(loaded["m"], pinned=frozenset())}
    assert decide(stored(stable="a"), unpinned, memory=100) == Decision(unload=(C,))


def test_a_version_is_as_important_as_its_best_role() -> None:
    """A stable version that is also the shadow does not give way to a canary."""
    decision = decide(
        stored(stable="a", shadow="a", canary="b"), served({"a": READY}, stable="a", shadow="a"), memory=10
    )
    assert decision == Decision(refused=decision.refused)
    assert list(decision.refused) == [B]


@dataclass
class Service:
    """Does what it is told, and checks that it may."""

    memory: int
    models: dict[str, ModelState] = field(default_factory=lambda: {name: ModelState() for name in "mn"})

    def obey(self, decision: Decision) -> None:
        for one in decision.flips:
            model = self.models[one.model]
            assert one.label != "stable" if one.version is None else model.is_ready(one.version)
            self.models[one.model] = model.moved(one.label, one.version)
        for reference in decision.unload:
            model = self.models[reference.model]
            assert reference.version not in model.serving.values()
            self.change(reference, State.UNLOADING)
            if model.previous == reference.version:
                self.models[reference.model] = replace(self.models[reference.model], previous=None)

    def change(self, reference: Reference, status: State | None, size: int = 0) -> None:
        model = self.models[reference.model]
        versions = dict(model.versions)
        held = versions.pop(reference.version, VersionState(status=State.LOADING, size=size))
        if status is not None:
            versions[reference.version] = replace(held, status=status)
        self.models[reference.model] = replace(model, versions=versions)

    def with_status(self, status: State) -> list[Reference]:
        return [
            Reference(name, version)
            for name, model in self.models.items()
            for version, held in model.versions.items()
            if held.status is status
        ]

    def used(self) -> int:
        return sum(
            held.size
            for model in self.models.values()
            for held in model.versions.values()
            if held.status is not State.FAILED
        )

    def turn(self, store: dict[str, StoredModel] | None) -> Decision:
        before = {name: model.serving.get("stable") for name, model in self.models.items()}
        decision = decide(store, self.models, memory=self.memory)
        assert decide(store, self.models, memory=self.memory) == decision
        self.obey(decision)
        if decision.load is not None:
            self.change(decision.load, State.LOADING, store[decision.load.model].sizes[decision.load.version])
        assert self.used() <= self.memory
        for name, model in self.models.items():
            assert before[name] is None or "stable" in model.serving
            assert all(model.versions[version].status is State.READY for version in model.serving.values())
        return decision


FINISHED = {
    "loaded": (State.LOADING, State.READY),
    "failed": (State.LOADING, State.FAILED),
    "drained": (State.UNLOADING, None),
}
VERSIONS = [str(index) for index in range(5)]
LABEL_MOVE = st.tuples(st.sampled_from("mn"), st.sampled_from(LABELS), st.sampled_from([*VERSIONS, None]))
EVENT = st.one_of(
    LABEL_MOVE.map(lambda move: ("label", move)),
    st.tuples(st.sampled_from("mn"), st.sets(st.sampled_from(VERSIONS), max_size=2)).map(lambda pin: ("pin", pin)),
    st.sampled_from([("loaded", None), ("failed", None), ("drained", None), ("unreachable", None)]),
)


@given(
    events=st.lists(EVENT, max_size=40),
    sizes=st.lists(st.integers(1, 40), min_size=5, max_size=5),
    memory=st.integers(20, 200),
)
def test_a_service_that_obeys_stays_available_and_settles(
    events: list[tuple[str, Any]], sizes: list[int], memory: int
) -> None:
    """Under any history: memory is kept, stable never ends, labels serve ready versions; then it comes to rest."""
    service, sized = Service(memory), dict(zip(VERSIONS, sizes, strict=True))
    labels: dict[str, dict[Label, str]] = {"m": {}, "n": {}}

    def store() -> dict[str, StoredModel]:
        return {name: StoredModel(labels=dict(value), sizes=sized) for name, value in labels.items()}

    def finish(status: State, result: State | None) -> None:
        for reference in service.with_status(status)[:1]:
            service.change(reference, result)

    for kind, move in events:
        match kind:
            case "label":
                model, label, version = move
                labels[model].pop(label, None)
                if version is not None:
                    labels[model][label] = version
            case "pin":
                model, pins = move
                service.models[model] = replace(service.models[model], pinned=frozenset(pins))
            case _ if kind in FINISHED:
                finish(*FINISHED[kind])
        decision = service.turn(None if kind == "unreachable" else store())
        assert kind != "unreachable" or decision == Decision()

    for _ in range(60):
        finish(State.LOADING, State.READY)
        finish(State.UNLOADING, None)
        last = service.turn(store())
        moving = service.with_status(State.LOADING) + service.with_status(State.UNLOADING)
        if not (last.flips or last.unload or last.load or moving):
            break
    else:
        raise AssertionError(f"it never comes to rest: {last}")
    for name, model in service.models.items():
        for label, version in labels[name].items():
            settled = model.serving.get(label) == version
            failed = version in model.versions and model.versions[version].status is State.FAILED
            assert settled or failed or Reference(name, version) in last.refused
        for version in model.pinned:
            assert version in model.versions or Reference(name, version) in last.refused
        used = {*model.serving.values(), model.previous, *model.pinned}
        assert all(version in used for version, held in model.versions.items() if held.status is State.READY)


def test_a_version_that_served_before_stands_in_for_a_stable_one_that_cannot() -> None:
    """The last one that can be loaded, also before any canary; then the label's."""
    wanted = {"m": replace(stored(stable="b", canary="d")["m"], served=("b", "c", "a"))}
    assert decide(wanted, {}, memory=100) == Decision(load=B)
    down = {"b": VersionState(status=State.FAILED, size=10)}
    assert decide(wanted, served(down), memory=100) == Decision(load=C)
    assert decide(wanted, served({**down, "c": READY}), memory=100).flips == (flip("stable", "c"),)
    down["c"] = VersionState(status=State.RETRYING, size=10)
    assert decide(wanted, served(down), memory=100) == Decision(load=A)
    back = served({"b": READY, "c": READY}, stable="c")
    assert decide(wanted, back, memory=100).flips == (flip("stable", "b"),)


def test_a_version_that_serves_is_not_exchanged_for_one_that_served_before() -> None:
    """Nor is one loaded where the label was removed."""
    wanted = {"m": replace(stored(stable="b")["m"], served=("c", "a"))}
    assert decide(wanted, served({"a": READY, "c": READY}, stable="a"), memory=100).flips == ()
    removed = {"m": replace(stored()["m"], served=("c", "a"))}
    assert decide(removed, {}, memory=100) == Decision()


def test_a_version_that_served_before_is_loaded_before_a_new_stable_one_if_both_fit() -> None:
    """A replica that starts then serves at once, whatever becomes of the new one; else the label's comes first."""
    wanted = {"m": replace(stored(stable="b")["m"], served=("c", "a"))}
    assert decide(wanted, {}, memory=20) == Decision(load=C)
    assert decide(wanted, {}, memory=19) == Decision(load=B)
    assert decide(wanted, served({"c": READY}), memory=20) == Decision(flips=(flip("stable", "c"),), load=B)
    assert decide(wanted, served({"b": VersionState(status=State.LOADING, size=10)}), memory=100) == Decision()


def test_a_version_that_is_loaded_is_overtaken_by_a_more_important_one() -> None:
    """By a stable one that waits, but neither by one as important, nor by one that is refused or has failed."""
    loading = VersionState(status=State.LOADING, size=10)
    canary = served({"a": READY, "b": loading}, stable="a")
    assert decide(stored(stable="c", canary="b"), canary, memory=100).overtaken == B
    assert decide(stored(stable="a", canary="b", shadow="d"), canary, memory=100).overtaken is None
    assert decide(stored(stable="c", canary="b"), canary, memory=9).overtaken is None
    failed = served({"a": READY, "b": loading, "c": VersionState(status=State.FAILED, size=10)}, stable="a")
    assert decide(stored(stable="c", canary="b"), failed, memory=100).overtaken is None
