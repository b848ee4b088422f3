"""The real server, with model calls that can be made to hang: `python -m tools.hanging`.

While the file that HANG_FILE names exists, model calls do not return, as if a driver or a kernel were hanging.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from cerberank_models.backends.stage_contract import Backend, StageOutput
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_service.app import create_app
from cerberank_service.serve import SWITCH_SECONDS, run
from cerberank_service.settings import Settings, read_settings
from cerberank_service.telemetry.logs import configure_logs
from cerberank_service.versions.loading import Loaded, load

LOOK_SECONDS = 0.05


class HangingBackend:
    """A wrapper of a backend whose model calls do not return while a file exists."""

    def __init__(self, backend: Backend[Any], hang: Path) -> None:
        """Wrap `backend`; model calls hang while the file `hang` exists."""
        self._backend = backend
        self._hang = hang

    def __getattr__(self, name: str) -> Any:
        """The attribute of the wrapped backend."""
        return getattr(self._backend, name)

    def run(self, state: Any, stage: int) -> StageOutput[Any]:
        """Run the stage once the file does not exist."""
        while self._hang.exists():
            time.sleep(LOOK_SECONDS)
        return self._backend.run(state, stage)


def load_hanging(checkpoint: Checkpoint, settings: Settings) -> Loaded:
    """Load a version, and wrap its backend in a HangingBackend."""
    loaded = load(checkpoint, settings)
    backend = HangingBackend(loaded.backend, Path(os.environ["HANG_FILE"]))
    return replace(loaded, backend=cast("Backend[Any]", backend))


def main() -> int:
    """Serve like `cerberank serve`."""
    settings = read_settings()
    configure_logs(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    return run(create_app(settings, load_hanging), settings)


if __name__ == "__main__":
    sys.exit(main())
