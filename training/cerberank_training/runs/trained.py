"""The result of a run. Importing it loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """The result of a run."""

    checkpoint: Path
    """The folder with the weights that were best on dev."""
    dev_map: float
    """The MAP on the dev questions, in percent."""
