"""Keep a store of this release, which later releases must read: python -m tests.models.kept.make.

The store has a model of three stages and three heads with a first stage, a calibration, languages and a schedule, in
fp32 and int8, pushed under the label `stable`; the golden questions of its checkpoint are the scores to reproduce.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from tests.calibrations import calibrated
from tests.first_stages import attached
from tests.tiny import random_checkpoint

from cerberank_models import __version__
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.store import Store

FOLDER = Path(__file__).parent


def keep(path: Path) -> None:
    """Write the store as a compressed archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = read_checkpoint(random_checkpoint(folder / "plain", name="kept"))
        first = attached(plain, folder / "first")
        calibrated(first.path, folder / "calibrated")
        last = read_checkpoint(folder / "calibrated")
        settings = {"languages": ("en",), "drop_schedule": (0.25, 0.5, 0.5), "drop_minimum": 1}
        config = last.config.model_copy(update=settings)
        revise_checkpoint(last, folder / "whole", version="1", config=config)
        Store(folder / "store").push(folder / "whole", label="stable")
        with tarfile.open(path, "x:gz") as archive:
            archive.add(folder / "store", "store")


if __name__ == "__main__":
    keep(FOLDER / f"store-{__version__}.tar.gz")
