"""The checkpoint that is used if none is named."""

from __future__ import annotations

import os
from pathlib import Path

BUNDLED = Path(__file__).resolve().parents[1] / "checkpoints" / "cerberank-mini"


def default_checkpoint() -> Path:
    """The folder `CERBERANK_CHECKPOINT`, or the bundled checkpoint if that is not set."""
    named = os.environ.get("CERBERANK_CHECKPOINT")
    return Path(named) if named else BUNDLED
