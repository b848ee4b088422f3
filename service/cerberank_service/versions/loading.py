"""Brings a version into service: opens it, checks its golden questions, warms it up and starts its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.contract import Reference
from cerberank_models.encoding import PairEncoder
from cerberank_models.rank import check_golden
from cerberank_service.engine.engine import Engine
from cerberank_service.engine.objective import objective_of
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.warm_up import warm_up

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint with the backend that runs it."""

    checkpoint: Checkpoint
    backend: Backend[Any]


Loader = Callable[[Settings], Loaded]


def load(settings: Settings) -> Loaded:
    """Read the checkpoint that the settings name and open its backend; a copy out of a store was verified before."""
    checkpoint = read_checkpoint(settings.checkpoint or BUNDLED, verified=bool(settings.store))
    backend = open_backend(
        checkpoint,
        kind=settings.backend,
        precision=settings.precision,
        threads=settings.threads or None,
        device=settings.device,
        graph_tokens=settings.graph_tokens,
    )
    return Loaded(checkpoint, backend)


class LiveVersion:
    """A version that can answer questions, with its engine, its encoder and its lease count."""

    def __init__(self, checkpoint: Checkpoint, engine: Engine, encoder: PairEncoder, precision: str) -> None:
        """Own the engine and the encoder, which the worker threads share.

        `precision` is the number format that the backend computes in.
        """
        self.checkpoint, self.engine, self.encoder, self.precision = checkpoint, engine, encoder, precision
        self.schedule = checkpoint.config.schedule
        """The drop schedule of calls without drop ratios; an operator may change it."""
        self.leases = 0
        """Number of requests that use it, maintained by `VersionRegistry`."""
        self.answered = self.failed = 0
        """Questions since a label was last moved to it; `failed` counts internal errors."""

    @property
    def reference(self) -> Reference:
        """Model and version."""
        return Reference(self.checkpoint.config.name, self.checkpoint.manifest.version)


def bring_up(
    loaded: Loaded,
    settings: Settings,
    metrics: Metrics,
    *,
    others: Iterable[LiveVersion] = (),
    pause: Callable[[], None] = lambda: None,
) -> LiveVersion:
    """Check the golden questions, warm up, and start the engine.

    A tokenizer that one of the `others` has opened from the same file is shared. `pause` is called between pieces of
    work of some milliseconds each.

    Raises GoldenMismatchError, NonFiniteScoreError, TooSlowError, MemoryError, or the model's own error.
    """
    checkpoint, backend = loaded.checkpoint, loaded.backend
    pause()
    encoder = checkpoint.encoder(_known_tokenizer(checkpoint, others))
    check_golden(backend, checkpoint, backend.precision, encoder=encoder, pause=pause)
    speeds = warm_up(backend, encoder, step_tokens=settings.step_tokens, slowest_ms=settings.slowest_ms, pause=pause)
    config = checkpoint.config
    engine = Engine(
        backend,
        step_tokens=speeds.step_tokens,
        metrics=metrics.for_model(
            config.name,
            checkpoint.manifest.version,
            len(config.stages),
            counts=backend.counts,
            tuned=config.tuned_schedules,
        ),
        most_tokens=settings.max_queued_tokens,
        objective=objective_of(settings.objective_slowdown),
        speeds=speeds,
    )
    engine.start()
    return LiveVersion(checkpoint, engine, encoder, backend.precision)


def _known_tokenizer(checkpoint: Checkpoint, others: Iterable[LiveVersion]) -> Tokenizer | None:
    digest = checkpoint.manifest.files.get(TOKENIZER)
    known = {each.checkpoint.manifest.files.get(TOKENIZER): each.encoder.tokenizer for each in others}
    return known.get(digest) if digest else None
