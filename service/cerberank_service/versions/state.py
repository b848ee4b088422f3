"""The state of models and their versions, as an immutable snapshot; every change creates a new snapshot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from cerberank_models.checkpoint.store.checkpoint_store import Label, Reference
from cerberank_service.versions.loading import LiveVersion

FOLDERS = re.compile(r"(?<![\w.:/~])(?:file://)?~?/(?:[^\s/'\",:;]+/)+")
"""The folders of an absolute path, or those before its first blank."""


def without_folders(text: str) -> str:
    """The text with paths of files shortened to their names, for clients."""
    return FOLDERS.sub("", text)


class State(Enum):
    """The state of the service or of a version."""

    LOADING = "loading"
    """A version is being copied, verified, opened, checked and warmed up."""
    READY = "ready"
    DRAINING = "draining"
    """An operator has drained the service: it accepts no new questions."""
    UNLOADING = "unloading"
    """A version answers its last requests; its memory is not freed yet."""
    REFUSED = "refused"
    """A version that a label or pin names is not loaded, for lack of memory."""
    FAILED = "failed"
    """A version cannot serve. It uses no memory and is retried only if an operator loads it (versions never change)."""
    RETRYING = "retrying"
    """A version could not be copied, for a reason other than the version itself. It uses no memory and is retried."""
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionState:
    """The state of one version."""

    status: State
    size: int
    """Estimated memory in bytes."""
    live: LiveVersion | None = None
    """The loaded version, from READY until its memory is freed."""
    reason: str = ""
    """The reason that the version failed or is retried."""

    @property
    def down(self) -> bool:
        """True if the version cannot serve, permanently or until a retry; it then uses no memory."""
        return self.status in {State.FAILED, State.RETRYING}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelState:
    """The versions and labels of one model."""

    versions: Mapping[str, VersionState] = field(default_factory=dict)
    serving: Mapping[Label, str] = field(default_factory=dict)
    """The version that serves each label."""
    previous: str | None = None
    """The previous stable version, kept loaded for a rollback."""
    pinned: frozenset[str] = frozenset()
    """Versions that an operator keeps loaded independently of labels."""

    def moved(self, label: Label, version: str | None) -> ModelState:
        """The model with a label on another version, or without the label.

        The stable version becomes the previous one, unless `stable` went back to the previous one: the version that
        was left then must not be what the next rollback returns to.
        """
        serving, previous = dict(self.serving), self.previous
        left_version = serving.pop(label, None)
        if version is not None:
            serving[label] = version
        if label == "stable":
            previous = None if version == previous else left_version
        return replace(self, serving=serving, previous=previous)

    @property
    def any_ready(self) -> bool:
        """True if any version can answer questions."""
        return any(state.status is State.READY for state in self.versions.values())

    def is_ready(self, version: str) -> bool:
        """True if this version can answer questions."""
        state = self.versions.get(version)
        return state is not None and state.status is State.READY

    @property
    def ready(self) -> list[str]:
        """The versions that can answer questions."""
        return sorted(version for version, state in self.versions.items() if state.status is State.READY)

    def labelled(self, label: Label) -> LiveVersion | None:
        """The loaded version that serves a label; None while the label is not set."""
        version = self.serving.get(label)
        return None if version is None else self.versions[version].live


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of all models at one moment."""

    models: Mapping[str, ModelState] = field(default_factory=dict)
    default: str | None = None
    """The model of requests that do not name one."""
    wanted: Mapping[str, Mapping[Label, str]] = field(default_factory=dict)
    """The labels in the store, by model. A label's version in the store differs from its version in `serving` while the
    former is loading or cannot serve."""
    refused: Mapping[Reference, str] = field(default_factory=dict)
    """Versions that are not loaded for lack of memory, with the reason."""
    reason: str = ""
    """The reason that nothing can be served, if it is not a version's failure."""
    started_up: bool = False
    """True once start-up is over: the requested versions have been loaded or have failed, or one of them takes long."""
    device_failed: bool = False
    """True if the device failed while a version was loading, or in a version that is not loaded any more."""
    starved: bool = False
    """True if every request of late failed because the machine lacks memory, threads or descriptors."""
    draining: bool = False
    leaving: bool = False
    """True while the process is about to stop but still accepts questions, so that load balancers can notice."""
    stopped: bool = False

    @property
    def state(self) -> State:
        """The state of the service; READY while every stable version accepts questions and no device has failed."""
        if self.stopped:
            return State.STOPPED
        if not self.started_up:
            return State.LOADING
        if self.draining or self.leaving:
            return State.DRAINING
        return State.READY if self.stable() and not self.broken else State.FAILED

    @property
    def broken(self) -> bool:
        """True if the process must be restarted: it is starved, or a stable version's engine or any device has failed.

        A CUDA context is shared by the whole process, and a version cannot recover from its failure.
        """
        if self.stopped:
            return False
        lost = self.starved or self.device_failed or any(live.engine.device_failed for live in self.live())
        return lost or any(not live.engine.alive for live in self.stable())

    def stable(self) -> list[LiveVersion]:
        """The stable version of every model that has one."""
        return [live for model in self.models.values() if (live := model.labelled("stable")) is not None]

    def live(self) -> list[LiveVersion]:
        """Every loaded version."""
        return [v.live for model in self.models.values() for v in model.versions.values() if v.live is not None]

    @property
    def held_bytes(self) -> int:
        """The estimated memory of all versions that use memory."""
        versions = [state for model in self.models.values() for state in model.versions.values()]
        return sum(state.size for state in versions if not state.down)

    def model(self, name: str) -> ModelState:
        """The state of a model; an empty state for an unknown model."""
        return self.models.get(name, ModelState())

    def version(self, reference: Reference) -> VersionState | None:
        """The state of a version; None for an unknown version."""
        return self.model(reference.model).versions.get(reference.version)

    def labels(self) -> list[tuple[str, Label, str]]:
        """Model, label and version of every label that is set."""
        return [(name, label, v) for name, model in self.models.items() for label, v in model.serving.items()]

    def wanted_labels(self) -> list[tuple[str, Label, bool]]:
        """Model, label, and True if another version serves the label here, for every label in the store."""
        return [
            (name, label, self.model(name).serving.get(label) != version)
            for name, labels in self.wanted.items()
            for label, version in labels.items()
        ]

    def stable_and_shadow(self, model: str) -> tuple[LiveVersion, LiveVersion] | None:
        """The stable and shadow versions of a model; None unless both exist and differ."""
        stable, shadow = self.model(model).labelled("stable"), self.model(model).labelled("shadow")
        return None if stable is None or shadow is None or stable is shadow else (stable, shadow)

    def with_model(self, name: str, model: ModelState) -> Snapshot:
        """A snapshot in which `name` has the state `model`; a model without versions and pins is removed."""
        models = {**self.models, name: model}
        if not (model.versions or model.pinned):
            del models[name]
        return replace(self, models=models)

    def with_version(self, reference: Reference, version: VersionState | None) -> Snapshot:
        """A snapshot in which `reference` has the state `version`; None removes it."""
        model = self.model(reference.model)
        versions = {name: state for name, state in model.versions.items() if name != reference.version}
        if version is not None:
            versions[reference.version] = version
        return self.with_model(reference.model, replace(model, versions=versions))
