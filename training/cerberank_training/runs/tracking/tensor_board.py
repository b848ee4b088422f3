"""Figures in TensorBoard's event files, in the folder `tensorboard` of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

FLUSH_SECONDS = 10


class TensorBoard:
    """Writes event files. TensorBoard itself drops the points of a killed call after the step of the resume."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str]) -> None:
        """Track the run in `folder`; `settings` are shown as its text."""
        self._folder = folder / "tensorboard"
        self._settings = settings
        self._writer: SummaryWriter

    def begin(self, step: int, seen: Mapping[str, int]) -> None:
        """Open an event file that tells its readers to drop points after `step`, or all points if `step` is 0."""
        purge = (step + 1 if step else 0) if step or seen else None
        self._writer = SummaryWriter(str(self._folder), purge_step=purge, flush_secs=FLUSH_SECONDS)
        rows = [f"| {name} | {value} |" for name, value in self._settings.items()]
        self._writer.add_text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]), step + 1)

    def figures(self, step: int, values: Mapping[str, float]) -> None:
        """Write a point for each figure."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:
        """Write the buffered points."""
        self._writer.close()
