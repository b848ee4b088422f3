"""The versions in service and where each label points. What to change is decided elsewhere (`lifecycle`).

Requests take a lease on a version and give it back. A label moves by one exchange of the routes, under the same lock as
leases are taken: a version that nothing points to any more gets no new lease, and ends when its last one is back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cerberank_models.checkpoint.store.contract import Label, Reference
from cerberank_service.engine.engine import stopped, unwanted
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.settings import Settings
from cerberank_service.versions.lifecycle import Flip, Held, ServedModel, Status
from cerberank_service.versions.loading import LiveVersion
from cerberank_service.versions.routing import Routed, Routes, route
from cerberank_service.versions.state import Model, State, Version


class Lease:
    """The use of at most one version by one request."""

    def __init__(self, served: ServedModels) -> None:
        """Nothing is taken yet."""
        self._served = served
        self._version: LiveVersion | None = None
        self._closed = False

    def take(self, name: str | None, version: str | None, question: str) -> LiveVersion:
        """The version that answers. Raises ServiceError as `routing.route` does, or when the client has gone."""
        with self._served.lock:
            if self._closed:  # its request was cancelled while a worker prepared it
                raise unwanted()
            # A replica that stops or drains meanwhile answers what it has let in: see `check_room`.
            self._version = self._served.find(name, version, question, asked=False)
            self._version.leases += 1
            return self._version

    def close(self) -> None:
        """Give it back."""
        with self._served.lock:
            self._closed = True
            if self._version is not None:
                self._version.leases -= 1
                last = self._version.leases == 0
        if self._version is not None and last:
            self._served.on_idle()


class ServedModels:
    """Any thread may use it."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is served yet."""
        self.lock = threading.RLock()
        self.models: dict[str, Model] = {}
        self.refused: Mapping[Reference, str] = {}
        """Versions that are not loaded as things stand."""
        self.reason = ""
        """Why nothing can be served, when that is no version's fault."""
        self.on_idle: Callable[[], None] = lambda: None
        """Called after a version's last lease is back."""
        self._routes = Routes(aliases=settings.alias_names, canary_percent=settings.canary_percent)
        self._default = settings.default_model or None
        self._settled = self._draining = self._stopped = False

    @property
    def state(self) -> State:
        """READY while every stable version's engine lives and takes questions."""
        with self.lock:
            if self._stopped:
                return State.STOPPED
            stable = self._stable()
            if not self._settled:
                return State.LOADING
            if self._draining:
                return State.DRAINING
            return State.READY if stable and all(live.engine.alive for live in stable) else State.FAILED

    @property
    def broken(self) -> bool:
        """Whether a stable version's thread has died: nothing brings it back but a new process."""
        with self.lock:
            return not self._stopped and any(not live.engine.alive for live in self._stable())

    @contextmanager
    def lease(self) -> Iterator[Lease]:
        """For one request."""
        lease = Lease(self)
        try:
            yield lease
        finally:
            lease.close()

    def check_room(self) -> None:
        """Raises ServiceError (503) when nothing is served, or no stable version's engine has room."""
        with self.lock:
            self._check_serving()
            engines = [live.engine for live in self._stable()]
        full: ServiceError | None = None
        for engine in engines:
            try:
                engine.check_room()
            except ServiceError as error:
                full = error
            else:
                return
        if full is not None:
            raise full

    def find(self, name: str | None, version: str | None, question: str = "", *, asked: bool = True) -> LiveVersion:
        """The version that a name means now. Raises ServiceError; when it is not `asked`, not for a replica's state."""
        with self.lock:
            if asked:
                self._check_serving()
            reference = route(self._routes, name, version, question)
            live = self.models[reference.model].versions[reference.version].live
            assert live is not None, "routes lead to ready versions"
            return live

    def labelled(self, model: str, label: Label) -> LiveVersion | None:
        """What serves a label."""
        with self.lock:
            served = self.models.get(model, Model())
            version = served.serving.get(label)
            return None if version is None else served.versions[version].live

    def stable_and_shadow(self, model: str) -> tuple[LiveVersion, LiveVersion] | None:
        """Both, when they are two."""
        with self.lock:
            stable, shadow = self.labelled(model, "stable"), self.labelled(model, "shadow")
        return None if stable is None or shadow is None or stable is shadow else (stable, shadow)

    def stable_and_previous(self, model: str) -> tuple[str | None, str | None]:
        """The stable version, and the one before it that is loaded still."""
        with self.lock:
            served = self.models.get(model, Model())
            return served.serving.get("stable"), served.previous

    def names(self) -> list[str]:
        """Models of which anything is known."""
        with self.lock:
            return sorted(self.models)

    def versions(self, model: str) -> list[str]:
        """Versions of `model` that can be asked."""
        with self.lock:
            known = self.models[model].versions if model in self.models else {}
            return sorted(version for version, each in known.items() if each.status is Status.READY)

    def live(self) -> list[LiveVersion]:
        """Every version that holds memory."""
        with self.lock:
            return [v.live for model in self.models.values() for v in model.versions.values() if v.live is not None]

    def answering(self) -> bool:
        """Whether somebody is being answered."""
        return any(live.leases for live in self.live())

    def snapshot(self) -> dict[str, ServedModel]:
        """For `lifecycle.decide`."""
        with self.lock:
            return {
                name: ServedModel(
                    versions={version: Held(status=v.status, size=v.size) for version, v in model.versions.items()},
                    serving=dict(model.serving),
                    previous=model.previous,
                    pinned=frozenset(model.pinned),
                )
                for name, model in self.models.items()
            }

    def loading(self, reference: Reference, size: int) -> None:
        """It is being loaded."""
        with self.lock:
            self.models.setdefault(reference.model, Model()).versions[reference.version] = Version(Status.LOADING, size)

    def ready(self, reference: Reference, live: LiveVersion) -> None:
        """It may be pointed to."""
        with self.lock:
            version = self.models[reference.model].versions[reference.version]
            version.status, version.live = Status.READY, live
            self._exchange()
            if self._stopped:
                live.engine.stop(0.0)

    def failed(self, reference: Reference, reason: str) -> None:
        """It cannot serve."""
        with self.lock:
            size = self.models[reference.model].versions[reference.version].size
            self.models[reference.model].versions[reference.version] = Version(Status.FAILED, size, reason=reason)

    def flip(self, flip: Flip) -> None:
        """Let a label point elsewhere."""
        with self.lock:
            model = self.models[flip.model]
            before = model.serving.pop(flip.label, None)
            if flip.version is not None:
                model.serving[flip.label] = flip.version
                live = model.versions[flip.version].live
                assert live is not None, "labels move to ready versions only"
                live.answered = live.failed = 0
            if flip.label == "stable":
                model.previous = before
                self._default = self._default or flip.model
            self._exchange()

    def retire(self, reference: Reference) -> None:
        """No new request may come to it."""
        with self.lock:
            model = self.models[reference.model]
            model.versions[reference.version].status = Status.UNLOADING
            if model.previous == reference.version:
                model.previous = None
            self._exchange()

    def forget(self, reference: Reference) -> None:
        """It holds no memory and is not known any more."""
        with self.lock:
            model = self.models[reference.model]
            model.versions.pop(reference.version, None)
            if not (model.versions or model.pinned):
                del self.models[reference.model]
            self._exchange()

    def pin(self, reference: Reference) -> None:
        """Keep it loaded, whatever the labels say; one that has failed is tried again."""
        with self.lock:
            model = self.models.setdefault(reference.model, Model())
            model.pinned.add(reference.version)
            known = model.versions.get(reference.version)
            if known is not None and known.status is Status.FAILED:
                self.forget(reference)

    def unpin(self, reference: Reference) -> None:
        """Give up what keeps it loaded beside labels: its pin, and that it is the version to go back to."""
        with self.lock:
            model = self.models[reference.model]
            model.pinned.discard(reference.version)
            if model.previous == reference.version:
                model.previous = None
            if not (model.versions or model.pinned):
                del self.models[reference.model]

    def drain(self, draining: bool) -> None:
        """Take no new questions, or take them again; those that are in the engines are answered."""
        with self.lock:
            self._draining = draining

    def settle(self) -> None:
        """What was asked for at the start has been loaded, or has failed."""
        self._settled = True

    def refuse(self) -> None:
        """Be no longer ready; what is on its way to the engines is still answered."""
        with self.lock:
            self._stopped = True

    def stop(self) -> None:
        """Answer what the engines still hold with 503. Does not wait."""
        self.refuse()
        for live in self.live():
            live.engine.stop(0.0)

    def join(self, timeout: float) -> None:
        """Wait until the engines' threads have ended, but no longer than `timeout` seconds each: they may hang."""
        for live in self.live():
            live.engine.join(timeout)

    def _stable(self) -> list[LiveVersion]:
        return [live for name in self.models if (live := self.labelled(name, "stable")) is not None]

    def _check_serving(self) -> None:
        if self._stopped:
            raise stopped()
        if self._draining:
            raise ServiceError(Kind.UNAVAILABLE, "this replica takes no questions for now; ask again", retry_after=2)
        if not self._routes.models:
            if not self._settled:
                raise ServiceError(Kind.UNAVAILABLE, "the model is still loading; see /health/ready", retry_after=2)
            raise ServiceError(Kind.UNAVAILABLE, "no model could be loaded; see /v1/models", retry_after=10)

    def _exchange(self) -> None:
        """New routes in the place of the old ones: the pointer flip."""
        models = {
            name: Routed(
                ready=frozenset(v for v, known in model.versions.items() if known.status is Status.READY),
                serving=dict(model.serving),
            )
            for name, model in self.models.items()
        }
        routed = {name: each for name, each in models.items() if each.ready}
        self._routes = replace(self._routes, models=routed, default=self._default if self._default in routed else None)
