"""Which labels the rules move, given what each version has answered; the store and the versions are stand-ins."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cerberank_models.checkpoint.store.contract import Label, Reference
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.rollout.comparison import Comparison
from cerberank_service.rollout.rules import Rules
from cerberank_service.rollout.shadow_figures import ShadowFigures
from cerberank_service.settings import Settings
from cerberank_service.versions.state import ModelState, Snapshot, State, VersionState

MODEL = "fake-ranker"
ENOUGH = 20
Moves = list[tuple[str, ...]]


@dataclass
class Service:
    """One model of a service that follows a store, and what the rules did to its labels."""

    serving: dict[Label, str]
    previous: str | None = None
    failed: dict[str, int] = field(default_factory=dict)
    """Questions that each version could not answer; it answered none."""
    dead: set[str] = field(default_factory=set)
    figures: ShadowFigures | None = None
    away: bool = False
    """The store cannot be reached."""
    moves: Moves = field(default_factory=list)

    @property
    def snapshot(self) -> Snapshot:
        versions = {version: self._version(version) for version in ("1", "2", "3")}
        return Snapshot(models={MODEL: ModelState(versions=versions, serving=self.serving, previous=self.previous)})

    def _version(self, version: str) -> VersionState:
        live: Any = SimpleNamespace(
            reference=Reference(MODEL, version),
            answered=0,
            failed=self.failed.get(version, 0),
            engine=SimpleNamespace(alive=version not in self.dead),
        )
        return VersionState(status=State.READY, size=1, live=live)

    def rules(self, **settings: object) -> Rules:
        wanted = {"rollback_failure_percent": 50, "promote_after": 3} | settings
        shadow: Any = SimpleNamespace(figures=lambda model: self.figures)
        versions: Any = self
        labels: Any = self
        return Rules(Settings.model_validate(wanted), versions, shadow, labels)

    def move(self, model: str, label: Label, version: str | None, *, only_from: str) -> None:
        self._told("move", label, str(version), only_from)

    def rollback(self, model: str) -> None:
        self._told("rollback")
        assert self.previous is not None
        self.serving["stable"], self.previous = self.previous, self.serving["stable"]

    def promote(self, model: str, version: str) -> None:
        self._told("promote", version)

    def _told(self, *move: str) -> None:
        self.moves.append(move)
        if self.away:
            raise ServiceError(Kind.UNAVAILABLE, "the store cannot be reached")


def did_well(shadow: str) -> ShadowFigures:
    figures = ShadowFigures("1", shadow)
    for _ in range(3):
        figures.add(Comparison(flipped=False, overlap=1.0, shift=0.0), stable_seconds=1.0, shadow_seconds=1.0)
    return figures


def test_a_stable_version_that_fails_is_taken_back_once(no_settings: None) -> None:
    """The one before serves again, and stays when it fails as well: two bad versions would take turns for ever."""
    service = Service({"stable": "2"}, previous="1", failed={"2": ENOUGH, "1": ENOUGH})
    rules = service.rules()
    for _ in range(3):
        rules.apply()
    assert service.moves == [("rollback",)]
    assert service.serving == {"stable": "1"}


def test_a_dead_engine_is_taken_back_at_once(no_settings: None) -> None:
    """Before it has failed on enough questions; without the rule it is not."""
    for settings, moves in (({}, [("rollback",)]), ({"rollback_failure_percent": 0}, [])):
        service = Service({"stable": "2"}, previous="1", dead={"2"})
        service.rules(**settings).apply()
        assert service.moves == moves


def test_there_is_nothing_to_go_back_to(no_settings: None) -> None:
    """The only version stays, whatever it does."""
    service = Service({"stable": "2"}, failed={"2": ENOUGH})
    service.rules().apply()
    assert service.moves == []


def test_a_canary_loses_its_label_before_stable_is_looked_at(no_settings: None) -> None:
    """One move a turn; the label is taken only from the version that failed."""
    service = Service({"stable": "2", "canary": "3"}, previous="1", failed={"2": ENOUGH, "3": ENOUGH})
    rules = service.rules()
    rules.apply()
    assert service.moves == [("move", "canary", "None", "3")]
    del service.serving["canary"]
    rules.apply()
    assert service.moves[1:] == [("rollback",)]


def test_a_shadow_that_did_well_is_promoted(no_settings: None) -> None:
    """After so many questions within all limits; by hand where the setting is 0."""
    for promote_after, moves in ((3, [("promote", "2")]), (4, []), (0, [])):
        service = Service({"stable": "1", "shadow": "2"}, figures=did_well("2"))
        service.rules(promote_after=promote_after).apply()
        assert service.moves == moves


def test_what_was_taken_back_is_not_promoted_again(no_settings: None) -> None:
    """However well it does as a shadow later; another version is."""
    service = Service({"stable": "2"}, previous="1", failed={"2": ENOUGH})
    rules = service.rules()
    rules.apply()
    service.failed.clear()
    for shadow, moves in (("2", []), ("3", [("promote", "3")])):
        service.figures = did_well(shadow)
        rules.apply()
        assert service.moves[1:] == moves


@pytest.mark.parametrize("kind", ["canary", "shadow"])
def test_a_store_that_is_away_is_asked_again(no_settings: None, kind: Label) -> None:
    """The next turn makes the same move."""
    service = Service({"stable": "1", kind: "2"}, away=True)
    if kind == "canary":
        service.failed["2"] = ENOUGH
    else:
        service.figures = did_well("2")
    rules = service.rules()
    rules.apply()
    rules.apply()
    assert len(service.moves) == 2
    assert service.moves[0] == service.moves[1]
