"""The real server with a model call that can be made to hang: `python -m tools.hanging`.

While the file that HANG_FILE names exists, no call of a model returns. It stands for a driver or kernel that hangs.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from cerberank_models.backends.contract import Backend, StageOutput
from cerberank_service.app import create_app
from cerberank_service.serve import SWITCH_SECONDS, run
from cerberank_service.settings import Settings, read_settings
from cerberank_service.telemetry.logs import configure_logs
from cerberank_service.versions.loading import Loaded, load

LOOK_SECONDS = 0.05


class HangingBackend:
    """A backend that does as another one, but for model calls that do not return while a file exists."""

    def __init__(self, backend: Backend[Any], hang: Path) -> None:
        """The one, and the file."""
        self._backend, self._hang = backend, hang

    def __getattr__(self, name: str) -> Any:
        """As the other one."""
        return getattr(self._backend, name)

    def run(self, state: Any, stage: int) -> StageOutput[Any]:
        """As the other one, perhaps never."""
        while self._hang.exists():
            time.sleep(LOOK_SECONDS)
        return self._backend.run(state, stage)


def load_hanging(settings: Settings) -> Loaded:
    """The version as `load` opens it, in such a backend."""
    loaded = load(settings)
    backend = HangingBackend(loaded.backend, Path(os.environ["HANG_FILE"]))
    return replace(loaded, backend=cast("Backend[Any]", backend))


def main() -> int:
    """Serve as `cerberank serve` does."""
    settings = read_settings()
    configure_logs(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    return run(create_app(settings, load_hanging), settings)


if __name__ == "__main__":
    sys.exit(main())
