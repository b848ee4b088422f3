"""Figures for Weights & Biases, which its environment variables configure (WANDB_PROJECT, WANDB_MODE, ...)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import wandb

from cerberank_training.runs.tracking.tracker import store_id, stored_id, unseen


class WeightsAndBiases:
    """One W&B run, which all calls of a resumed training run use."""

    def __init__(self, folder: Path, *, name: str, settings: Mapping[str, str]) -> None:
        """Track the run in `folder`."""
        self._folder = folder
        self._name = name
        self._settings = settings
        self._seen: Mapping[str, int] = {}
        self._run: wandb.Run

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Begin a W&B run, or continue the one of this folder."""
        self._seen = seen
        known = stored_id(self._folder, "wandb")
        self._run = wandb.init(
            id=known or secrets.token_hex(8),
            name=self._name,
            config=dict(self._settings),
            resume="allow" if known else None,
            dir=self._folder,
            settings=wandb.Settings(console="off", silent=True),
        )
        if known is None:
            store_id(self._folder, "wandb", self._run.id)

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Log the figures that no earlier call has logged, because W&B cannot remove points."""
        if new := unseen(step, values, self._seen):
            self._run.log(new, step=step)

    def close(self, *, finished: bool) -> None:
        """Send the remaining figures and the state of the run."""
        self._run.finish(exit_code=0 if finished else 1)
