"""Which labels the rules move in a real store, given what each version has answered; the versions are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cerberank_models.checkpoint.store.contract import Label, Reference
from cerberank_models.checkpoint.store.folder import FolderStore
from cerberank_service.rollout.comparison import Comparison
from cerberank_service.rollout.labels import Labels
from cerberank_service.rollout.rules import Rules
from cerberank_service.rollout.shadow_figures import LEAST_CANDIDATES, ShadowFigures
from cerberank_service.settings import Settings
from cerberank_service.versions.state import ModelState, Snapshot, State, VersionState

MODEL = "fake-ranker"
ENOUGH = 20


@dataclass
class Replica:
    """One model of a service that follows a store, as its registry and its shadow describe it."""

    store: FolderStore
    serving: dict[Label, str]
    previous: str | None = None
    failed: dict[str, int] = field(default_factory=dict)
    """Questions that each version could not answer; it answered none."""
    dead: set[str] = field(default_factory=set)
    figures: ShadowFigures | None = None
    state: dict[str, bool] = field(default_factory=dict)
    """Whether the replica stops or drains."""

    @property
    def snapshot(self) -> Snapshot:
        versions = {version: self._version(version) for version in ("1", "2", "3")}
        model = ModelState(versions=versions, serving=self.serving, previous=self.previous)
        return Snapshot(models={MODEL: model}, **self.state)

    def _version(self, version: str) -> VersionState:
        live: Any = SimpleNamespace(
            reference=Reference(MODEL, version),
            answered=0,
            failed=self.failed.get(version, 0),
            engine=SimpleNamespace(alive=version not in self.dead),
        )
        return VersionState(status=State.READY, size=1, live=live)

    def follow(self) -> None:
        """Adopt the labels of the store, as the watcher does."""
        labels = self.store.labels(MODEL)
        if labels.get("stable") != self.serving.get("stable"):
            self.previous = self.serving.get("stable")
        self.serving = labels

    def rules(self, **settings: object) -> Rules:
        wanted = {"rollback_failure_percent": 50, "promote_after": 3} | settings
        shadow: Any = SimpleNamespace(figures=lambda model: self.figures)
        versions: Any = self
        return Rules(Settings.model_validate(wanted), versions, shadow, Labels(self.store, versions, lambda: None))


Make = Callable[..., Replica]


@pytest.fixture
def replica(tmp_path: Path, no_settings: None) -> Make:
    """Makes replicas of one store with three versions; the labels are those of the replica made last."""
    store = FolderStore(tmp_path)
    for version in ("1", "2", "3"):
        (tmp_path / MODEL / version).mkdir(parents=True)
        (tmp_path / MODEL / version / "manifest.json").touch()

    def make(serving: dict[Label, str], **known: Any) -> Replica:
        for label, version in serving.items():
            store.move_label(MODEL, label, version)
        return Replica(store, dict(serving), **known)

    return make


def did_well(shadow: str, candidates: int = LEAST_CANDIDATES) -> ShadowFigures:
    figures = ShadowFigures("1", shadow)
    for _ in range(3):
        compared = Comparison(flipped=False, overlap=1.0, shift=0.0)
        figures.add(compared, candidates=candidates, stable_seconds=1.0, shadow_seconds=1.0)
    return figures


def test_two_replicas_do_not_swap_two_bad_versions(replica: Make) -> None:
    """What one has taken back, no other goes back to, nor one that was started since."""
    first = replica({"stable": "2"}, previous="1", failed={"2": ENOUGH, "1": ENOUGH})
    first.rules().apply()
    assert first.store.labels(MODEL) == {"stable": "1"}
    assert first.store.record(MODEL).taken_back == ("2",)
    second = Replica(first.store, {"stable": "1"}, previous="2", failed=first.failed)
    for each in (second, first):
        each.follow()
        each.rules().apply()
    assert first.store.labels(MODEL) == {"stable": "1"}


def test_a_rule_does_not_undo_an_operators_move(replica: Make) -> None:
    """A label that was moved after the rule looked stays where it is, and nothing is taken back."""
    asked = replica({"stable": "2", "canary": "2"}, previous="1", failed={"2": ENOUGH})
    rules = asked.rules()
    for label in ("stable", "canary"):
        asked.store.move_label(MODEL, label, "3")
    rules.apply()
    asked.serving = {"stable": "2"}
    rules.apply()
    asked.failed, asked.figures = {}, ShadowFigures("2", "1", judged=did_well("1").judged)
    rules.apply()
    assert asked.store.labels(MODEL) == {"stable": "3", "canary": "3"}
    assert asked.store.record(MODEL).taken_back == ()


@pytest.mark.parametrize("state", ["stopped", "draining", "leaving"])
def test_a_replica_that_stops_or_drains_moves_nothing(replica: Make, state: str) -> None:
    """Its engines are not alive because it stops, not because their versions are bad."""
    asked = replica({"stable": "2", "canary": "3"}, previous="1", dead={"2", "3"}, state={state: True})
    asked.figures = did_well("1")
    asked.rules().apply()
    assert asked.store.labels(MODEL) == {"stable": "2", "canary": "3"}


def test_a_replica_that_begins_to_stop_while_a_rule_looks_moves_nothing(replica: Make) -> None:
    """The state is read after the engine, which ends later than the state says so."""
    asked = replica({"stable": "2"}, previous="1")

    class Stops:
        @property
        def alive(self) -> bool:
            asked.state["stopped"] = True
            return False

    version = asked._version
    asked._version = lambda name: _with_engine(version(name), Stops())  # type: ignore[method-assign]
    asked.rules().apply()
    assert asked.state == {"stopped": True}
    assert asked.store.labels(MODEL) == {"stable": "2"}


def _with_engine(version: VersionState, engine: Any) -> VersionState:
    live: Any = version.live
    live.engine = engine
    return version


def test_a_dead_engine_is_taken_back_at_once(replica: Make) -> None:
    """Before it has failed on enough questions; without the rule it is not."""
    for settings, stable in (({"rollback_failure_percent": 0}, "2"), ({}, "1")):
        asked = replica({"stable": "2"}, previous="1", dead={"2"})
        asked.rules(**settings).apply()
        assert asked.store.labels(MODEL) == {"stable": stable}


def test_there_is_nothing_to_go_back_to(replica: Make) -> None:
    """The only version stays, whatever it does."""
    asked = replica({"stable": "2"}, failed={"2": ENOUGH})
    asked.rules().apply()
    assert asked.store.labels(MODEL) == {"stable": "2"}


def test_a_canary_loses_its_label_before_stable_is_looked_at(replica: Make) -> None:
    """One move a turn; both versions are remembered."""
    asked = replica({"stable": "2", "canary": "3"}, previous="1", failed={"2": ENOUGH, "3": ENOUGH})
    rules = asked.rules()
    rules.apply()
    assert asked.store.labels(MODEL) == {"stable": "2"}
    asked.follow()
    rules.apply()
    assert asked.store.labels(MODEL) == {"stable": "1"}
    assert asked.store.record(MODEL).taken_back == ("2", "3")


@pytest.mark.parametrize(
    ("promote_after", "candidates", "stable"),
    [(3, LEAST_CANDIDATES, "2"), (3, LEAST_CANDIDATES - 1, "1"), (4, 100, "1"), (0, 100, "1")],
)
def test_a_shadow_that_did_well_is_promoted(replica: Make, promote_after: int, candidates: int, stable: str) -> None:
    """After so many questions of enough candidates; by hand where the setting is 0."""
    asked = replica({"stable": "1", "shadow": "2"}, figures=did_well("2", candidates))
    asked.rules(promote_after=promote_after).apply()
    assert asked.store.labels(MODEL)["stable"] == stable


def test_what_was_taken_back_is_not_promoted_again(replica: Make) -> None:
    """However well it does as a shadow later; another version is."""
    asked = replica({"stable": "2"}, previous="1", failed={"2": ENOUGH})
    asked.rules().apply()
    asked.follow()
    asked.failed.clear()
    for shadow, stable in (("2", "1"), ("3", "3")):
        asked.figures = did_well(shadow)
        asked.rules().apply()
        assert asked.store.labels(MODEL)["stable"] == stable


@pytest.mark.parametrize("kind", ["canary", "shadow"])
def test_a_store_that_is_away_is_asked_again(replica: Make, kind: Label, tmp_path: Path) -> None:
    """The rule makes its move when the store is back."""
    asked = replica({"stable": "1", kind: "2"})
    if kind == "canary":
        asked.failed["2"] = ENOUGH
    else:
        asked.figures = did_well("2")
    rules, place = asked.rules(), tmp_path / MODEL
    place.rename(tmp_path / "away")
    rules.apply()
    (tmp_path / "away").rename(place)
    assert kind in asked.store.labels(MODEL)
    rules.apply()
    assert kind not in asked.store.labels(MODEL)
