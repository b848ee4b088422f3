"""Small checkpoints of the fake ranker that a store takes, and how to open them: real files around a fake backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.service.fakes import FakeBackend, checkpoint_for, ranker_config, tokenizer

from cerberank_models.checkpoint.folder import Checkpoint, write_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import CheckpointStore, Label
from cerberank_models.config import RankerConfig
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded

GRAPH_BYTES = 1000
SIZE = 2 * 3 * GRAPH_BYTES
"""Bytes of memory that the service expects a version to take."""


def version_at(
    folder: Path,
    version: str,
    *,
    name: str = "fake-ranker",
    graph_bytes: int = GRAPH_BYTES,
    golden_shift: float = 0.0,
    pre_tokenizer: dict[str, Any] | None = None,
    weights: bool = False,
) -> Checkpoint:
    """A checkpoint with three graphs, or weights alone, that nobody reads."""
    config = RankerConfig.model_validate({**ranker_config().model_dump(), "name": name})
    folder.mkdir(parents=True, exist_ok=True)
    (golden,) = checkpoint_for(FakeBackend(config), folder).golden
    shifted = golden.model_copy(update={"scores": {"int8": tuple(s + golden_shift for s in golden.scores["int8"])}})
    changed = {} if pre_tokenizer is None else {"pre_tokenizer": pre_tokenizer}
    return write_checkpoint(
        folder / f"{name}-{version}",
        config=config,
        tokenizer=json.dumps(json.loads(tokenizer().to_str()) | changed).encode(),
        card="# fake\n",
        version=version,
        source="tests",
        files={"model.safetensors": b"x"}
        if weights
        else {f"onnx/int8/stage-{stage}.onnx": b"x" * graph_bytes for stage in range(3)},
        golden=[shifted],
    )


def push(store: CheckpointStore, checkpoint: Checkpoint, *labels: Label) -> None:
    """Push, then move the labels to it."""
    model, version = store.push(checkpoint)
    for label in labels:
        store.move_label(model, label, version)


def open_fake(checkpoint: Checkpoint, settings: Settings) -> Loaded:
    """A loader for `create_app`, which opens no graphs."""
    return Loaded(checkpoint, FakeBackend(checkpoint.config))
