"""Writes a changed copy of a checkpoint to a new folder. The old checkpoint is not touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cerberank_models.checkpoint.folder import REQUIRED, Checkpoint, write_checkpoint
from cerberank_models.config import SCHEDULES, RankerConfig


def revise_checkpoint(
    checkpoint: Checkpoint,
    path: Path,
    *,
    version: str,
    config: RankerConfig | None = None,
    card: str | None = None,
    files: Mapping[str, Path | bytes] | None = None,
) -> Checkpoint:
    """Write `checkpoint` to the new folder `path` with a new version and the given changes.

    `files` are added, or replace the old files of the same names. Golden questions are kept, which fits changes of
    schedules and languages in `config`, because they are scored without dropping. Raises ValueError if `config` changes
    the network, and FileExistsError if `path` exists.
    """
    config = config or checkpoint.config
    fixed = {*SCHEDULES, "name", "languages"}
    if config.model_dump(exclude=fixed) != checkpoint.config.model_dump(exclude=fixed):
        raise ValueError(
            "a revision may change a checkpoint's name, languages and schedules, not its network or encoding"
        )
    old = {name: checkpoint.path / name for name in checkpoint.manifest.files if name not in REQUIRED}
    return write_checkpoint(
        path,
        config=config,
        tokenizer=(checkpoint.path / "tokenizer.json").read_bytes(),
        card=card if card is not None else (checkpoint.path / "README.md").read_text(encoding="utf-8"),
        version=version,
        source=checkpoint.manifest.source,
        files={**old, **(files or {})},
        golden=checkpoint.golden,
        metrics=checkpoint.manifest.metrics,
    )
