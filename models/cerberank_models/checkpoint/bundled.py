"""The checkpoint that is used when none is named."""

from __future__ import annotations

import os
from pathlib import Path

BUNDLED = Path(__file__).resolve().parents[1] / "checkpoints" / "cerberank-mini"


def default_checkpoint() -> Path:
    """`CERBERANK_CHECKPOINT`, else the bundled checkpoint."""
    named = os.environ.get("CERBERANK_CHECKPOINT")
    return Path(named) if named else BUNDLED
