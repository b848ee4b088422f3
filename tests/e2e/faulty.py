"""The real server with a fake model that fails on demand: `python -m tests.e2e.faulty FOLDER`.

It serves the versions of CERBERANK_STORE. Every step takes 50 ms, and a candidate with the word `explode` makes the
model raise an error. While a file stands in FOLDER, `explode` ends its thread (`exit`) or exceeds its memory
(`memory`), its calls hang (`hang`), or a read of the store does (`unread`).
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from tests.service.conftest import copied_here
from tests.service.fakes import SECRET, FakeBackend, FakeState

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.app import create_app
from cerberank_service.serve import run
from cerberank_service.settings import Settings, read_settings
from cerberank_service.versions import copies
from cerberank_service.versions.loading import Loaded

STEP_SECONDS = 0.05


@dataclass
class SlowBackend(FakeBackend):
    """One whose time is known, and whose faults the files of a folder cause."""

    folder: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        self.faults.error = self._error

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        """As the fake does, later."""
        time.sleep(STEP_SECONDS)
        wait_while(self.folder / "hang")
        return super().run(state, stage)

    def _error(self) -> BaseException:
        if (self.folder / "exit").exists():
            return SystemExit()
        return RuntimeError("CUDA out of memory" if (self.folder / "memory").exists() else SECRET)


def wait_while(file: Path) -> None:
    """Return once the file is not there."""
    while file.exists():
        time.sleep(0.01)


def main(folder: str) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level="INFO", stream=sys.stderr)
    place, listed = Path(folder), FolderStore.models
    settings = read_settings()

    def open_slow(checkpoint: Checkpoint, settings: Settings) -> Loaded:
        return Loaded(checkpoint, SlowBackend(checkpoint.config, folder=place))

    def models(store: FolderStore) -> tuple[str, ...]:
        wait_while(place / "unread")
        return listed(store)

    # Another process would try the fake checkpoint with a real backend.
    with patch.object(FolderStore, "models", models), patch.object(copies, "_started", copied_here):
        run(create_app(settings, open_slow), settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
