"""The registry of versions in service: an immutable snapshot that is replaced under a lock, and leases for requests.

A request holds a lease on its version. A label move replaces the snapshot under the lock that also guards the leases.
Therefore a version without labels gets no new leases. The watcher unloads it after its last lease is released, or after
the drain time. `lifecycle` decides which labels move and which versions are loaded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cerberank_models.checkpoint.store.checkpoint_store import Label, Reference
from cerberank_service.engine.work import client_gone, stopped
from cerberank_service.errors import Kind, Refusal, ServiceError
from cerberank_service.settings import Settings
from cerberank_service.versions.lifecycle import Flip
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.routing import RoutingSettings, route
from cerberank_service.versions.state import Snapshot, State, VersionState, without_folders

MOST_SHORTAGES = 20
"""Number of requests in a row that fail for a shortage, with no question answered in between, after which the process
must be restarted."""


class Lease:
    """The right of one request to use at most one version."""

    def __init__(self, registry: VersionRegistry) -> None:
        """Start without a version."""
        self._registry = registry
        self.version: LiveVersion | None = None
        self.closed = False

    def take(self, name: str | None, version: str | None, question: str) -> LiveVersion:
        """The version that answers. Raises ServiceError as `routing.route` does, or when the lease is closed."""
        return self._registry.lend(self, name, version, question)


class VersionRegistry:
    """The state of all versions. Thread-safe: readers take `snapshot` once and read from it, as it never changes."""

    def __init__(self, settings: Settings, on_idle: Callable[[], None]) -> None:
        """Start without versions. `on_idle` is called after a version's last lease is released."""
        self._lock = threading.RLock()
        self._on_idle = on_idle
        self._routing = RoutingSettings(aliases=settings.alias_names, canary_percent=settings.canary_percent)
        self._snapshot = Snapshot(default=settings.default_model or None)
        self._shortages = 0

    @property
    def snapshot(self) -> Snapshot:
        """The current state of all models."""
        return self._snapshot

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """A lease for one request, released when the block ends."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            self._return(lease)

    def lend(self, lease: Lease, name: str | None, version: str | None, question: str) -> LiveVersion:
        """Route a request and count its lease; see `Lease.take`."""
        with self._lock:
            if lease.closed:  # its request was cancelled while a worker prepared it
                raise client_gone()
            # No `check_serving` here: accepted requests are answered even if the replica stops or drains meanwhile.
            lease.version = self._routed(name, version, question)
            lease.version.leases += 1
            return lease.version

    def _return(self, lease: Lease) -> None:
        last = False
        with self._lock:
            lease.closed = True
            if lease.version is not None:
                lease.version.leases -= 1
                last = lease.version.leases == 0
        if last:
            self._on_idle()

    def check_serving(self) -> None:
        """Raises ServiceError (503) when nothing is served; a request that passes this check counts as accepted."""
        _check_serving(self._snapshot)

    def check_room(self) -> None:
        """Raises ServiceError (503) when the engines of all stable versions are full."""
        full: ServiceError | None = None
        for live in self._snapshot.stable():
            try:
                live.engine.check_room()
            except ServiceError as error:
                full = error
            else:
                return
        if full is not None:
            raise full

    def find(self, name: str | None, version: str | None, *, serving: bool = True) -> LiveVersion:
        """The version that a name refers to now. Raises ServiceError; with `serving` also if nothing is served."""
        if serving:
            _check_serving(self._snapshot)
        return self._routed(name, version, "")

    def answering(self) -> bool:
        """True while any request is being answered."""
        return any(live.leases for live in self._snapshot.live())

    def loading(self, reference: Reference, size: int) -> None:
        """Record that a version is being loaded; it will take `size` bytes of memory."""
        with self._lock:
            self._set(reference, VersionState(status=State.LOADING, size=size))

    def ready(self, reference: Reference, live: LiveVersion) -> None:
        """Record that a version is ready, so that labels may move to it."""
        with self._lock:
            self._set(reference, replace(self._state(reference), status=State.READY, live=live))
            if self._snapshot.stopped:
                live.engine.stop(0.0)

    def failed(self, reference: Reference, reason: str) -> None:
        """Record that a version cannot serve."""
        with self._lock:
            size = self._state(reference).size
            self._set(reference, VersionState(status=State.FAILED, size=size, reason=reason))

    def retrying(self, reference: Reference, reason: str) -> None:
        """Record that a version could not be copied and will be retried."""
        with self._lock:
            size = self._state(reference).size
            self._set(reference, VersionState(status=State.RETRYING, size=size, reason=reason))

    def set_wanted(self, wanted: Mapping[str, Mapping[Label, str]]) -> None:
        """Record the labels of the store, by model."""
        with self._lock:
            self._snapshot = replace(self._snapshot, wanted=wanted)

    def flip(self, flip: Flip) -> None:
        """Move or remove a label."""
        with self._lock:
            snapshot, model = self._snapshot, self._snapshot.models[flip.model]
            if flip.version is not None:
                assert model.versions[flip.version].live is not None, "labels move to ready versions only"
            if flip.label == "stable":
                snapshot = replace(snapshot, default=snapshot.default or flip.model)
            self._snapshot = snapshot.with_model(flip.model, model.moved(flip.label, flip.version))

    def retire(self, reference: Reference) -> None:
        """Stop routing requests to a version, before it is unloaded."""
        with self._lock:
            state = self._state(reference)
            if state.live is not None and state.live.engine.device_failed:
                self.device_failed()
            self._set(reference, replace(state, status=State.UNLOADING))
            self._forget_previous(reference)

    def forget(self, reference: Reference) -> None:
        """Remove a version that does not use memory any more."""
        with self._lock:
            self._set(reference, None)

    def pin(self, reference: Reference) -> None:
        """Keep a version loaded independently of labels; a failed version is retried."""
        with self._lock:
            model = self._snapshot.model(reference.model)
            pinned = replace(model, pinned=model.pinned | {reference.version})
            self._snapshot = self._snapshot.with_model(reference.model, pinned)
            state = self._snapshot.version(reference)
            if state is not None and state.down:
                self._set(reference, None)

    def unpin(self, reference: Reference) -> None:
        """Remove a version's pin and its role as the rollback version, so that it can be unloaded.

        Raises ServiceError: 404 when it is not loaded, 409 while a label names it.
        """
        with self._lock:
            model = self._snapshot.model(reference.model)
            if reference.version not in {*model.versions, *model.pinned}:
                raise ServiceError(Kind.NOT_FOUND, f"{'@'.join(reference)} is not loaded")
            if labels := [label for label, version in model.serving.items() if version == reference.version]:
                raise ServiceError(Kind.CONFLICT, f"{'@'.join(reference)} serves {', '.join(labels)}: move that first")
            unpinned = replace(model, pinned=model.pinned - {reference.version})
            self._snapshot = self._snapshot.with_model(reference.model, unpinned)
            self._forget_previous(reference)

    def set_reason(self, reason: str) -> None:
        """Record a reason other than a version that nothing can be served; empty when it no longer exists."""
        with self._lock:
            self._snapshot = replace(self._snapshot, reason=reason)

    def refuse_to_load(self, refused: Mapping[Reference, str]) -> None:
        """Replace the set of versions that are not loaded for lack of memory, with the reasons."""
        with self._lock:
            self._snapshot = replace(self._snapshot, refused=dict(refused))

    def device_failed(self) -> None:
        """Record that the device has failed, so that the process must be restarted."""
        with self._lock:
            self._snapshot = replace(self._snapshot, device_failed=True)

    def count_shortage(self) -> None:
        """Count a request that failed because the machine lacks memory, threads or descriptors."""
        with self._lock:
            self._shortages += 1
            self._snapshot = replace(self._snapshot, starved=self._shortages >= MOST_SHORTAGES)

    def answered(self) -> None:
        """Record that a question was answered, which ends a row of failures."""
        with self._lock:
            self._shortages = 0
            if self._snapshot.starved:
                self._snapshot = replace(self._snapshot, starved=False)

    def drain(self, draining: bool) -> None:
        """Refuse new questions, or accept them again; accepted questions are answered."""
        with self._lock:
            self._snapshot = replace(self._snapshot, draining=draining)

    def set_started_up(self) -> None:
        """Record that start-up is over: the requested versions have been loaded or have failed, or one takes long."""
        with self._lock:
            self._snapshot = replace(self._snapshot, started_up=True)

    def leave(self) -> None:
        """Become not ready; requests are still accepted."""
        with self._lock:
            self._snapshot = replace(self._snapshot, leaving=True)

    def refuse(self) -> None:
        """Become not ready and refuse new requests; accepted requests are still answered."""
        with self._lock:
            self._snapshot = replace(self._snapshot, stopped=True)

    def stop(self) -> None:
        """Stop the engines; questions that are not answered get 503. Does not wait."""
        self.refuse()
        for live in self._snapshot.live():
            live.engine.stop(0.0)

    def join(self, timeout: float) -> None:
        """Wait for the engines' threads to end, at most `timeout` seconds each, because a model call may hang."""
        for live in self._snapshot.live():
            live.engine.join(timeout)

    def _routed(self, name: str | None, version: str | None, question: str) -> LiveVersion:
        snapshot = self._snapshot
        state = snapshot.version(route(snapshot, self._routing, name, version, question))
        assert state is not None, "routes lead to known versions"
        assert state.live is not None, "routes lead to ready versions"
        return state.live

    def _state(self, reference: Reference) -> VersionState:
        return self._snapshot.models[reference.model].versions[reference.version]

    def _set(self, reference: Reference, version: VersionState | None) -> None:
        self._snapshot = self._snapshot.with_version(reference, version)

    def _forget_previous(self, reference: Reference) -> None:
        model = self._snapshot.model(reference.model)
        if model.previous == reference.version:
            self._snapshot = self._snapshot.with_model(reference.model, replace(model, previous=None))


def _check_serving(snapshot: Snapshot) -> None:
    if snapshot.stopped:
        raise stopped()
    if snapshot.draining:
        text = "this replica takes no questions for now; ask again"
        raise ServiceError(Kind.UNAVAILABLE, text, retry_after=2, refusal=Refusal("stopping"))
    if not any(model.any_ready for model in snapshot.models.values()):
        if not snapshot.started_up:
            text = (
                f"{without_folders(snapshot.reason) or 'the model is still loading'}; ask again, or see /health/ready"
            )
            wait = 10 if snapshot.reason else 2
            raise ServiceError(Kind.UNAVAILABLE, text, retry_after=wait, refusal=Refusal("loading"))
        text = "no model could be loaded; see /v1/models"
        raise ServiceError(Kind.UNAVAILABLE, text, retry_after=10, refusal=Refusal("failed"))
