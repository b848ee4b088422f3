"""The real server with a fake model that fails on demand: `python -m tests.e2e.faulty FOLDER raise|exit|slow`.

A candidate with the word `explode` makes the model raise an error, or end its thread. A slow one takes 50 ms for
every step. With CERBERANK_STORE it serves that store's versions.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.service.fakes import FakeBackend, FakeState, Faults, loader
from tests.service.pushes import open_fake

from cerberank_models.backends.contract import StageOutput
from cerberank_service.app import create_app
from cerberank_service.serve import run
from cerberank_service.settings import Settings, read_settings
from cerberank_service.versions.loading import Loaded

STEP_SECONDS = 0.05


@dataclass
class SlowBackend(FakeBackend):
    """One whose time is known."""

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        """As the fake does, later."""
        time.sleep(STEP_SECONDS)
        return super().run(state, stage)


def open_slow(settings: Settings) -> Loaded:
    """A version of the store, slow."""
    opened = open_fake(settings)
    return Loaded(opened.checkpoint, SlowBackend(opened.checkpoint.config))


def main(folder: str, fault: str) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level="INFO", stream=sys.stderr)
    faults = Faults(error=SystemExit) if fault == "exit" else Faults()
    open_faulty = loader(FakeBackend(faults=faults), Path(folder))
    settings = read_settings()
    run(create_app(settings, open_slow if fault == "slow" else open_faulty), settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
