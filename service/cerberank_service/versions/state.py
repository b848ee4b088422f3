"""What the service knows of models and their versions, as one immutable value; changes make a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from cerberank_models.checkpoint.store.contract import Label, Reference
from cerberank_service.versions.loading import LiveVersion


class State(Enum):
    """What has become of the service, or of a version."""

    LOADING = "loading"
    """A version is being copied, verified, opened, checked and warmed up."""
    READY = "ready"
    DRAINING = "draining"
    """The service could answer, but an operator wants it to take no questions."""
    UNLOADING = "unloading"
    """A version answers its last requests; its memory is not free yet."""
    REFUSED = "refused"
    """A version that a label names is not loaded, because there is no memory for it."""
    FAILED = "failed"
    """A version cannot serve. As versions never change it is not tried again; it holds no memory."""
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionState:
    """A version that the service knows."""

    status: State
    size: int
    """Bytes of memory that it takes, or will when it is loaded."""
    live: LiveVersion | None = None
    """What answers its questions, from READY until its memory is free."""
    reason: str = ""
    """Why it failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelState:
    """A model's versions."""

    versions: Mapping[str, VersionState] = field(default_factory=dict)
    serving: Mapping[Label, str] = field(default_factory=dict)
    """The version that each label's requests go to."""
    previous: str | None = None
    """The version that was stable before and is loaded still."""
    pinned: frozenset[str] = frozenset()
    """Versions that an operator wants loaded, whatever the labels say."""

    @property
    def ready(self) -> list[str]:
        """Versions that can be asked."""
        return sorted(version for version, known in self.versions.items() if known.status is State.READY)

    def labelled(self, label: Label) -> LiveVersion | None:
        """What answers a label's questions."""
        version = self.serving.get(label)
        return None if version is None else self.versions[version].live


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """All of it at one moment."""

    models: Mapping[str, ModelState] = field(default_factory=dict)
    default: str | None = None
    """The model of requests that name none."""
    refused: Mapping[Reference, str] = field(default_factory=dict)
    """Versions that are not loaded as things stand, with the reason."""
    reason: str = ""
    """Why nothing can be served, when that is no version's fault."""
    settled: bool = False
    """What was asked for at the start has been loaded, or has failed."""
    draining: bool = False
    stopped: bool = False

    @property
    def state(self) -> State:
        """READY while every stable version's engine runs and takes questions."""
        if self.stopped:
            return State.STOPPED
        if not self.settled:
            return State.LOADING
        if self.draining:
            return State.DRAINING
        stable = self.stable()
        return State.READY if stable and all(live.engine.alive for live in stable) else State.FAILED

    @property
    def broken(self) -> bool:
        """Whether a stable version's thread has died: nothing brings it back but a new process."""
        return not self.stopped and any(not live.engine.alive for live in self.stable())

    def stable(self) -> list[LiveVersion]:
        """The stable version of every model that has one."""
        return [live for model in self.models.values() if (live := model.labelled("stable")) is not None]

    def live(self) -> list[LiveVersion]:
        """Every version that holds memory."""
        return [v.live for model in self.models.values() for v in model.versions.values() if v.live is not None]

    def model(self, name: str) -> ModelState:
        """A model; an empty one when nothing is known of it."""
        return self.models.get(name, ModelState())

    def version(self, reference: Reference) -> VersionState | None:
        """A version, if it is known."""
        return self.model(reference.model).versions.get(reference.version)

    def labels(self) -> list[tuple[str, Label, str]]:
        """Model, label and version of every label that is set."""
        return [(name, label, v) for name, model in self.models.items() for label, v in model.serving.items()]

    def stable_and_shadow(self, model: str) -> tuple[LiveVersion, LiveVersion] | None:
        """Both, when they are two."""
        stable, shadow = self.model(model).labelled("stable"), self.model(model).labelled("shadow")
        return None if stable is None or shadow is None or stable is shadow else (stable, shadow)

    def with_model(self, name: str, model: ModelState) -> Snapshot:
        """With `model` in the place of what was known; one without versions and pins is forgotten."""
        models = {**self.models, name: model}
        if not (model.versions or model.pinned):
            del models[name]
        return replace(self, models=models)

    def with_version(self, reference: Reference, version: VersionState | None) -> Snapshot:
        """With `version` in the place of what was known; None forgets it."""
        model = self.model(reference.model)
        versions = {name: known for name, known in model.versions.items() if name != reference.version}
        if version is not None:
            versions[reference.version] = version
        return self.with_model(reference.model, replace(model, versions=versions))
