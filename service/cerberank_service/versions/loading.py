"""Brings a version into service: opens it, checks its golden questions, warms it up, and starts its engine.

A version of a store is tried before, by `try_version` in another process: what kills or blocks that process, or takes
too much memory, harms nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cerberank_models.backends.registry import open_backend, spec_of
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import Reference
from cerberank_models.config import DropSchedule, RankerConfig
from cerberank_models.encoding import PairEncoder
from cerberank_models.first_stage.backend import WithFirstStage
from cerberank_models.first_stage.opening import (
    check_first_stage,
    open_encoder,
    open_first_stage,
    open_scorer,
    read_golden,
)
from cerberank_models.first_stage.question_texts import FirstStage
from cerberank_models.first_stage.vector_store import VectorStore, VectorStoreError, read_manifest
from cerberank_models.golden import check_golden
from cerberank_models.ranking.prepare import Model
from cerberank_models.text_encoding import TextEncoder
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.engine import Engine
from cerberank_service.settings import Settings
from cerberank_service.telemetry.metrics import Metrics
from cerberank_service.versions.memory_budget import on_device
from cerberank_service.versions.warm_up import run_pair, warm_up

TOKENIZER = "tokenizer.json"
SHORT_PAIR = 32
"""Tokens of the pair that graphs for a GPU rank on the processor."""


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint with the backend that runs it."""

    checkpoint: Checkpoint
    backend: Backend[Any]
    """Runs the stages of pairs, without a first stage."""
    first_stage: FirstStage | None = None


Loader = Callable[[Checkpoint, Settings], Loaded]
"""Opens the backend of a checkpoint, as `load` does."""


def load(checkpoint: Checkpoint, settings: Settings) -> Loaded:
    """Open the checkpoint's backend, in the form and on the device of the settings."""
    form = settings.form(checkpoint.manifest.files)
    options: dict[str, Any] = {
        "kind": form.backend,
        "precision": form.precision,
        "threads": settings.threads or None,
        "device": settings.device,
    }
    backend = open_backend(checkpoint, **options)
    if checkpoint.config.first_stage is None:
        return Loaded(checkpoint, backend)
    return Loaded(checkpoint, backend, open_first_stage(checkpoint, **options))


class LiveVersion:
    """A version that can answer questions, with its engine, its encoder and its lease count."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: Engine,
        encoder: PairEncoder,
        precision: str,
        first_stage: FirstStage | None = None,
        *,
        unused_vectors: str = "",
    ) -> None:
        """Own the engine and the encoder, which worker threads share; `precision` is the backend's number format."""
        self.checkpoint = checkpoint
        self.engine = engine
        self.encoder = encoder
        self.precision = precision
        self.first_stage = first_stage
        """Worker threads use all of it but its backend, which belongs to the engine."""
        self.unused_vectors = unused_vectors
        """The reason that the store of vectors is not used; empty if it is used or not set."""
        self.schedule: DropSchedule | None = None
        """The drop schedule that an operator has set for calls without drop ratios; None for the checkpoint's own."""
        self.leases = 0
        """Number of requests that use the version; `VersionRegistry` counts them."""

    @property
    def model(self) -> Model:
        """The parts that read questions."""
        return Model(checkpoint=self.checkpoint, encoder=self.encoder, first_stage=self.first_stage)

    @property
    def reference(self) -> Reference:
        """Model and version."""
        return Reference(self.checkpoint.config.name, self.checkpoint.manifest.version)


def try_version(folder: Path, settings: Settings) -> None:
    """Open and check the verified copy `folder` as `load` and `bring_up` do, with a pair of full length.

    For a GPU all files are read, but a second copy of the model may not fit on it. Graphs are programs, so they are
    opened on the processor and rank one pair; whether they are right is decided on the GPU. Weights are only numbers,
    and are not opened. Raises as `load` and `bring_up` do.
    """
    checkpoint = read_checkpoint(folder, verified=True)
    if not on_device(settings):
        _checked(load(checkpoint, settings), settings, checkpoint.encoder(), longest=True)
        return
    encoder = checkpoint.encoder()
    if checkpoint.config.first_stage is not None:
        open_encoder(checkpoint)
        open_scorer(checkpoint)
        read_golden(checkpoint)
    form = settings.form(checkpoint.manifest.files)
    if spec_of(form.backend).runs_programs:
        on_processor = {"backend": form.backend, "precision": form.precision, "device": "cpu"}
        with suppress(Exception):  # libraries raise any type; the processor may lack what the GPU has
            backend, first = _stages(load(checkpoint, settings.model_copy(update=on_processor)))
            run_pair(backend, encoder, first, most_tokens=SHORT_PAIR)


def _stages(loaded: Loaded) -> tuple[Backend[Any], TextEncoder | None]:
    """The backend of all stages, and the encoder of the first stage if there is one."""
    if loaded.first_stage is None:
        return loaded.backend, None
    return WithFirstStage(loaded.first_stage.backend, loaded.backend), loaded.first_stage.encoder


def _checked(
    loaded: Loaded,
    settings: Settings,
    encoder: PairEncoder,
    *,
    longest: bool,
    pause: Callable[[], None] = lambda: None,
) -> tuple[Backend[Any], StageSpeeds]:
    """Check the golden questions, and a pair of full length if `longest`, and warm up; raises as `bring_up` does.

    Returns the backend of all stages with its measured speeds.
    """
    checkpoint, first = loaded.checkpoint, loaded.first_stage
    check_golden(loaded.backend, checkpoint, loaded.backend.precision, encoder=encoder, pause=pause)
    if first is not None:
        check_first_stage(first, checkpoint, pause=pause)
    backend, texts = _stages(loaded)
    if longest:
        pause()
        run_pair(backend, encoder, texts)
    speeds = warm_up(
        backend,
        encoder,
        texts,
        step_tokens=settings.step_tokens,
        slowest_ms=settings.slowest_ms,
        pause=pause,
    )
    return backend, speeds


def bring_up(
    loaded: Loaded,
    settings: Settings,
    metrics: Metrics,
    *,
    others: Iterable[LiveVersion] = (),
    pause: Callable[[], None] = lambda: None,
) -> LiveVersion:
    """Check the golden questions, warm up, and start the engine.

    If one of the `others` has the same tokenizer file, its tokenizer is shared. `pause` is called between pieces of
    work of some milliseconds each.

    Raises GoldenMismatchError, NonFiniteScoreError, TooSlowError, MemoryError, VectorStoreError, or the model's own
    error.
    """
    checkpoint, first = loaded.checkpoint, loaded.first_stage
    pause()
    if first is None and settings.vectors is not None:
        _without_first_stage(checkpoint.config, settings)
    unused_vectors = ""
    if first is not None:
        first, unused_vectors = _with_vectors(checkpoint.config, first, settings)
    encoder = checkpoint.encoder(_known_tokenizer(checkpoint, others))
    if checkpoint.config.drops_lexically:
        _ = encoder.stems  # before the first question, which would wait for it
    # A pair of full length may take seconds. `try_version` has run it at low priority, but not on a GPU.
    longest = not settings.store or on_device(settings)
    backend, speeds = _checked(loaded, settings, encoder, longest=longest, pause=pause)
    config = checkpoint.config
    engine = Engine(
        backend,
        step_tokens=speeds.step_tokens,
        metrics=metrics.for_model(
            config.name,
            checkpoint.manifest.version,
            config.scored_stages,
            counts=backend.counts,
            defaults=config.defaults,
            tuned=config.tuned_schedules,
        ),
        queue_seconds=settings.queue_seconds,
        speeds=speeds,
        # A pair of full length, which may be longer than those that CUDA graphs have room for.
        prepare_thread=partial(run_pair, backend, encoder, _stages(loaded)[1]) if on_device(settings) else lambda: None,
    )
    engine.start()
    if settings.unanswered_share is not None:
        checkpoint = checkpoint.with_unanswered(settings.unanswered_share)
    return LiveVersion(checkpoint, engine, encoder, backend.precision, first, unused_vectors=unused_vectors)


def _with_vectors(config: RankerConfig, first: FirstStage, settings: Settings) -> tuple[FirstStage, str]:
    """The first stage with the precomputed vectors that the settings name, or the reason that it goes without them.

    The vectors may belong to another encoder. A version from a store is then served without them, because the vectors
    of its successor are often in place before the successor. For a single checkpoint this is a mistake, and
    VectorStoreError, which names both encoders, is raised.
    """
    folder = settings.vectors
    if folder is None:
        return first, ""
    if settings.store and (other := read_manifest(folder).encoder) != first.config.encoder:
        unused = (
            f"{folder} holds vectors of the encoder {other}, the first stage of {config.name} has the encoder "
            f"{first.config.encoder}"
        )
        logger.warning("%s: every vector is computed", unused)
        return first, unused
    return replace(first, stored=VectorStore.open(folder, first.config)), ""


def _without_first_stage(config: RankerConfig, settings: Settings) -> None:
    """Warn that the checkpoint has no first stage that uses the precomputed vectors of the settings.

    As in `_with_vectors`, this is a mistake only for a single checkpoint, for which VectorStoreError is raised.
    """
    problem = f"CERBERANK_VECTORS names precomputed vectors, and {config.name} has no first stage that uses them"
    if not settings.store:
        raise VectorStoreError(problem)
    logger.warning("%s", problem)


def _known_tokenizer(checkpoint: Checkpoint, others: Iterable[LiveVersion]) -> Tokenizer | None:
    digest = checkpoint.manifest.files.get(TOKENIZER)
    known = {each.checkpoint.manifest.files.get(TOKENIZER): each.encoder.tokenizer for each in others}
    return known.get(digest) if digest else None
