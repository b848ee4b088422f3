from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.settings import Settings
from cerberank_service.versions.lifecycle import Flip
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.registry import VersionRegistry
from cerberank_service.versions.state import State

ONE, TWO = Reference("m", "1"), Reference("m", "2")


class Engine:
    """Runs, has room as long as `full` is not set, and notes that it was stopped."""

    def __init__(self) -> None:
        self.alive, self.full, self.stopped, self.device_failed = True, False, False, False

    def check_room(self) -> None:
        if self.full:
            raise ServiceError(Kind.UNAVAILABLE, "full", retry_after=3)

    def stop(self, drain_seconds: float) -> None:
        self.stopped = True


def live(**fields: Any) -> LiveVersion:
    return cast(LiveVersion, SimpleNamespace(engine=Engine(), leases=0, answered=5, failed=5, **fields))


class Registry(VersionRegistry):
    """With versions 1 and 2 ready, 1 stable, and a count of versions that became idle."""

    def __init__(self) -> None:
        self.idle = 0
        super().__init__(Settings(), self._count)
        for reference in (ONE, TWO):
            self.loading(reference, 10)
            self.ready(reference, live())
        self.flip(Flip(model="m", label="stable", version="1"))
        self.set_started_up()

    def _count(self) -> None:
        self.idle += 1

    def engine(self, reference: Reference) -> Any:
        known = self.snapshot.version(reference)
        return known.live.engine


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_a_lease_is_counted_until_its_request_ends(registry: Registry) -> None:
    """Whoever waits for idle versions is told once, after the last of them."""
    with registry.lease() as first, registry.lease() as second:
        version = first.take("m", None, "q")
        assert second.take("m", None, "q") is version
        assert (version.leases, registry.answering(), registry.idle) == (2, True, 0)
    assert (version.leases, registry.answering(), registry.idle) == (0, False, 1)


def test_a_request_that_was_cancelled_takes_no_lease(registry: Registry) -> None:
    """A worker may prepare it still; the version must not be kept for it."""
    with registry.lease() as lease:
        pass
    with pytest.raises(ServiceError, match="client has gone"):
        lease.take("m", None, "q")
    assert not registry.answering()


def test_a_retired_version_gets_no_new_lease(registry: Registry) -> None:
    """Neither by its name; the one that holds a lease keeps it."""
    with registry.lease() as held, registry.lease() as later:
        version = held.take("m@2", None, "q")
        registry.retire(TWO)
        with pytest.raises(ServiceError) as caught:
            later.take("m@2", None, "q")
        assert (caught.value.kind, version.leases) == (Kind.NOT_FOUND, 1)


def test_a_label_that_moves_remembers_what_was_stable(registry: Registry) -> None:
    """The next rollback goes there."""
    registry.flip(Flip(model="m", label="stable", version="2"))
    model = registry.snapshot.model("m")
    assert (model.serving, model.previous) == ({"stable": "2"}, "1")
    assert registry.snapshot.labels() == [("m", "stable", "2")]


def test_a_version_that_a_label_names_is_not_given_back(registry: Registry) -> None:
    """409; 404 for one that is not loaded; any other loses its pin."""
    for reference, kind in ((ONE, Kind.CONFLICT), (Reference("m", "9"), Kind.NOT_FOUND)):
        with pytest.raises(ServiceError) as caught:
            registry.unpin(reference)
        assert caught.value.kind is kind
    registry.pin(TWO)
    registry.unpin(TWO)
    assert registry.snapshot.model("m").pinned == frozenset()


def test_a_pinned_version_that_had_failed_is_tried_again(registry: Registry) -> None:
    """It is forgotten, so that the watcher loads it."""
    bad = Reference("m", "3")
    registry.loading(bad, 10)
    registry.failed(bad, "torn")
    known = registry.snapshot.version(bad)
    assert (known.status, known.reason, known.size) == (State.FAILED, "torn", 10)
    registry.pin(bad)
    assert registry.snapshot.version(bad) is None


def test_room_is_asked_of_stable_engines(registry: Registry) -> None:
    """One that has room is enough; a full one says when to come again."""
    registry.check_room()
    registry.engine(ONE).full = True
    with pytest.raises(ServiceError) as caught:
        registry.check_room()
    assert caught.value.retry_after == 3


def test_a_drained_replica_finds_versions_for_operators_alone(registry: Registry) -> None:
    """Questions get 503; an operator may still change a schedule, and what was accepted may still take a lease."""
    registry.drain(True)
    for refusing in (registry.check_serving, lambda: registry.find("m", None)):
        with pytest.raises(ServiceError) as caught:
            refusing()
        assert caught.value.kind is Kind.UNAVAILABLE
    assert registry.find("m", "stable", serving=False) is not None
    registry.check_room()
    with registry.lease() as lease:
        assert lease.take("m", None, "q") is not None


def test_a_version_that_is_ready_too_late_is_stopped(registry: Registry) -> None:
    """The process ends: nothing must wait for an engine that nobody would join."""
    registry.loading(Reference("m", "3"), 10)
    registry.stop()
    assert registry.engine(ONE).stopped
    late = live()
    registry.ready(Reference("m", "3"), late)
    assert cast(Any, late.engine).stopped
