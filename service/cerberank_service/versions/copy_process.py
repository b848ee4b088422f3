"""The process that copies one version out of the store and verifies it. `copies` starts it.

The copy has its own process because a hanging read, from a store or file system that does not respond, can only be
ended by killing its process. The process exits when its standard input is closed, which also happens when the process
that started it ends for any reason.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.contract import Reference
from cerberank_models.checkpoint.store.open import open_store
from cerberank_service.engine.faults import text_of


def main(argv: list[str]) -> int:
    """Copy a version; `argv` is the store's address, model, version, target folder, and the nice value to add.

    Returns 0, or 1 after writing the error as JSON to standard output: the names of its types, its errno and its text.
    Output of libraries is redirected to standard error.
    """
    threading.Thread(target=_end_with_input, daemon=True).start()
    verdict = os.dup(1)
    os.dup2(2, 1)
    address, model, version, target, niceness = argv
    os.nice(int(niceness))
    error = copied(address, Reference(model, version), Path(target))
    if error is None:
        return 0
    with os.fdopen(verdict, "w") as file:
        json.dump(error, file)
    return 1


def copied(address: str, reference: Reference, target: Path) -> dict[str, Any] | None:
    """Copy and verify a version; returns None, or the error: the names of its types, its errno and its text."""
    try:
        checkpoint = open_store(address).pull(reference, target)
        named = Reference(checkpoint.config.name, checkpoint.manifest.version)
        if named != reference:
            raise CheckpointError(f"it lies under {'@'.join(reference)} and calls itself {'@'.join(named)}")
    except Exception as error:  # libraries of stores raise their own types
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"kinds": kinds, "errno": getattr(error, "errno", None), "message": text_of(error)}
    return None


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
