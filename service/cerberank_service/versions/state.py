"""What the service knows of models and their versions; `ServedModels` holds and guards it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from cerberank_models.checkpoint.store.contract import Label
from cerberank_service.versions.lifecycle import Status
from cerberank_service.versions.loading import LiveVersion


class State(Enum):
    """What has become of the service, and of a version."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Whole, but an operator wants it to take no questions."""
    UNLOADING = "unloading"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True)
class Version:
    """What the service knows of a version."""

    status: Status
    size: int
    live: LiveVersion | None = None
    reason: str = ""
    """Why it failed."""


@dataclass(slots=True)
class Model:
    """A model's versions."""

    versions: dict[str, Version] = field(default_factory=dict)
    serving: dict[Label, str] = field(default_factory=dict)
    previous: str | None = None
    """Stable before, loaded still."""
    pinned: set[str] = field(default_factory=set)
    """Versions that an operator wants loaded, whatever the labels say."""
