"""The real server with a model call that can be made to hang: `python -m tests.soak.hanging`.

While the file that HANG_FILE names exists, no call of a model returns. It stands for a driver or kernel that hangs.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from cerberank_models.backends.contract import StageOutput
from cerberank_service.app import create_app
from cerberank_service.serve import SWITCH_SECONDS, run
from cerberank_service.settings import Settings, read_settings
from cerberank_service.telemetry.logs import configure_logs
from cerberank_service.versions.loading import Loaded, load

LOOK_SECONDS = 0.05


def load_hanging(settings: Settings) -> Loaded:
    """The version as `load` opens it."""
    loaded, hang = load(settings), Path(os.environ["HANG_FILE"])
    run_stage = loaded.backend.run

    def run_or_hang(state: Any, stage: int) -> StageOutput[Any]:
        while hang.exists():
            time.sleep(LOOK_SECONDS)
        return run_stage(state, stage)

    loaded.backend.run = run_or_hang  # type: ignore[method-assign]
    return loaded


def main() -> int:
    """Serve as `cerberank serve` does."""
    settings = read_settings()
    configure_logs(settings)
    sys.setswitchinterval(SWITCH_SECONDS)
    return run(create_app(settings, load_hanging), settings)


if __name__ == "__main__":
    sys.exit(main())
