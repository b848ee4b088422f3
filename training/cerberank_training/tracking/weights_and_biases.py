"""Figures for Weights & Biases; its environment variables (WANDB_PROJECT, WANDB_MODE, ...) say where to."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import wandb

from cerberank_training.tracking.identity import keep_id, known_id
from cerberank_training.tracking.tracker import unseen


class WeightsAndBiases:
    """One W&B run, which the calls of a resumed run share."""

    def __init__(self, folder: Path, *, name: str, settings: Mapping[str, str]) -> None:
        """Track the run in `folder`."""
        self._folder, self._name, self._settings = folder, name, settings
        self._seen: Mapping[str, int] = {}
        self._run: wandb.Run

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Begin a run, or go on with the one that this folder began."""
        self._seen = seen
        known = known_id(self._folder, "wandb")
        self._run = wandb.init(
            id=known or secrets.token_hex(8),
            name=self._name,
            config=dict(self._settings),
            resume="allow" if known else None,
            dir=self._folder,
            settings=wandb.Settings(console="off", silent=True),
        )
        if known is None:
            keep_id(self._folder, "wandb", self._run.id)

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Log what W&B, which takes no point back, was not given by an earlier call."""
        if new := unseen(step, values, self._seen):
            self._run.log(new, step=step)

    def close(self, *, finished: bool) -> None:
        """Send what is left, and the run's state."""
        self._run.finish(exit_code=0 if finished else 1)
