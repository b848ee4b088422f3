"""The model in service: loaded, verified against its golden questions, warmed up, then ready."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cerberank_models.backend import Backend
from cerberank_models.backends import open_backend
from cerberank_models.bundled import default_checkpoint
from cerberank_models.checkpoint import Checkpoint, read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank import check_golden
from cerberank_service.cost import StageSpeeds, stage_work
from cerberank_service.engine import Engine
from cerberank_service.metrics import Metrics, padding_of
from cerberank_service.settings import Settings

logger = logging.getLogger(__name__)

WARM_UP_WORDS = (4, 16, 48, 96)
"""Lengths of the warm-up candidates: a short phrase up to the usual token limit."""

WARM_UP_ROUNDS = 2


class State(Enum):
    """What has become of the model."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint with the backend that runs it."""

    checkpoint: Checkpoint
    backend: Backend[Any]


Loader = Callable[[Settings], Loaded]


def load(settings: Settings) -> Loaded:
    """Read the checkpoint that the settings name and open its backend."""
    checkpoint = read_checkpoint(settings.checkpoint or default_checkpoint())
    backend = open_backend(
        checkpoint,
        kind=settings.backend,
        precision=settings.precision,
        threads=settings.threads or None,
        device=settings.device,
    )
    return Loaded(checkpoint, backend)


class LiveModel:
    """Loads in a thread of its own, so that the process answers its probes meanwhile."""

    def __init__(self, settings: Settings, metrics: Metrics, loader: Loader = load) -> None:
        """Nothing is loaded before `start`."""
        self._settings, self._metrics, self._loader = settings, metrics, loader
        self._state, self.reason = State.LOADING, ""
        self._thread = threading.Thread(target=self._load, name="loader", daemon=True)
        self._lock = threading.Lock()
        self.checkpoint: Checkpoint | None = None
        self.engine: Engine | None = None

    @property
    def state(self) -> State:
        """READY only while the engine's thread lives and takes questions."""
        if self._state is State.READY and (self.engine is None or not self.engine.alive):
            return State.FAILED
        return self._state

    def start(self) -> None:
        """Begin to load."""
        self._thread.start()

    def refuse(self) -> None:
        """Be no longer ready; what is on its way to the engine is still answered."""
        with self._lock:
            self._state = State.STOPPED
            self._metrics.ready.set(0)

    def stop(self) -> None:
        """Answer what the engine still holds with 503. Does not wait."""
        self.refuse()
        if self.engine is not None:
            self.engine.stop(0.0)

    def join(self, timeout: float) -> None:
        """Wait until the engine's thread has ended, but no longer than `timeout` seconds: it may hang."""
        if self.engine is not None:
            self.engine.join(timeout)

    def describe(self) -> dict[str, Any]:
        """The entry in `/v1/models`."""
        checkpoint = self.checkpoint
        if checkpoint is None:
            return {"state": self.state.value, "reason": self.reason or None}
        config = checkpoint.config
        return {
            "model": config.name,
            "version": checkpoint.manifest.version,
            "state": self.state.value,
            "reason": self.reason or None,
            "architecture": str(config.architecture),
            "stages": len(config.stages),
            "exits": [exit_.after for exit_ in config.exits],
            "drop_schedule": list(config.schedule),
            "tuned_schedules": [
                {"schedule": list(entry.schedule), "cost": entry.cost, "metrics": dict(entry.metrics)}
                for entry in checkpoint.config.tuned_schedules
            ],
            "max_length": config.encoding.max_length,
            "context": config.encoding.segments == 3,
            "backend": self._settings.backend,
            "precision": self._settings.precision,
            "aliases": sorted(self._settings.alias_names),
            "metrics": checkpoint.manifest.metrics,
            "source": checkpoint.manifest.source,
        }

    def _load(self) -> None:
        try:
            loaded = self._loader(self._settings)
            self.checkpoint = loaded.checkpoint
            check_golden(loaded.backend, loaded.checkpoint, self._settings.precision)
            speeds = _warm_up(loaded)
        except Exception as error:  # whatever it is, the service must say why it is not ready
            self._state, self.reason = State.FAILED, str(error)
            logger.exception("the model is not ready")
            return
        config, version = loaded.checkpoint.config, loaded.checkpoint.manifest.version
        tuned = loaded.checkpoint.config.tuned_schedules
        padding = padding_of(loaded.backend)
        metrics = self._metrics.for_model(config.name, version, len(config.stages), padding=padding, tuned=tuned)
        with self._lock:
            if self._state is not State.LOADING:
                return
            self.engine = Engine(
                loaded.backend,
                step_tokens=self._settings.step_tokens,
                metrics=metrics,
                state_bytes=self._settings.state_bytes,
                most_tokens=self._settings.max_queued_tokens,
                speeds=speeds,
            )
            self.engine.start()
            self._state = State.READY
            self._metrics.ready.set(1)
        logger.info("ready: %s %s (%s)", config.name, version, loaded.checkpoint.path.name)


def _warm_up(loaded: Loaded) -> StageSpeeds:
    """Run every stage for a range of lengths, so that the first client does not pay for it; returns the speeds."""
    encoder, backend = loaded.checkpoint.encoder(), loaded.backend
    speeds = StageSpeeds(stage_work(backend.config))
    for round_ in range(WARM_UP_ROUNDS):
        for words in WARM_UP_WORDS:
            pairs = encoder.encode("what is a word", [Candidate(text="word " * words)] * 16)
            state = backend.start(pairs)
            for stage in range(len(backend.config.stages)):
                before = time.monotonic()
                output = backend.run(state, stage)
                if round_:  # the first one allocates and tunes
                    speeds.observe(stage, pairs.tokens, time.monotonic() - before)
                state = output.state
    return speeds
