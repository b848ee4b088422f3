"""The real server with a fake model that fails on demand: `python -m tests.e2e.faulty FOLDER raise|exit`.

A candidate with the word `explode` makes the model raise an error, or end its thread.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.service.fakes import FakeBackend, Faults, loader

from cerberank_service.app import create_app
from cerberank_service.serve import run
from cerberank_service.settings import read_settings


def main(folder: str, fault: str) -> None:
    """Serve until a signal comes."""
    logging.basicConfig(level="INFO", stream=sys.stderr)
    faults = Faults(error=SystemExit) if fault == "exit" else Faults()
    settings = read_settings()
    run(create_app(settings, loader(FakeBackend(faults=faults), Path(folder))), settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
