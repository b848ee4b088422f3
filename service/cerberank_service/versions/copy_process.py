"""The process that copies one version out of the store and verifies it, started by `copies`.

A read that hangs, of a store that does not answer or of a file system that is gone, ends only with its process.
The process ends when its standard input does, and so with the process that started it, however that one ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.checkpoint.store.contract import Reference
from cerberank_models.checkpoint.store.open import open_store


def main(argv: list[str]) -> int:
    """Copy; `argv` is the store's address, the model, the version, the folder to make and the nice value to add.

    Returns 0, or 1 after writing the error as JSON to standard output: the names of its types, its number, its text.
    What libraries print goes to standard error.
    """
    threading.Thread(target=_end_with_input, daemon=True).start()
    verdict = os.dup(1)
    os.dup2(2, 1)
    address, model, version, target, niceness = argv
    os.nice(int(niceness))
    try:
        checkpoint = open_store(address).pull(Reference(model, version), Path(target))
        named = Reference(checkpoint.config.name, checkpoint.manifest.version)
        if named != (model, version):
            raise CheckpointError(f"it lies under {model}@{version} and calls itself {'@'.join(named)}")
    except Exception as error:  # libraries of stores have errors of their own
        kinds = [kind.__name__ for kind in type(error).__mro__]
        found = {"kinds": kinds, "errno": getattr(error, "errno", None), "message": str(error) or kinds[0]}
        with os.fdopen(verdict, "w") as file:
            json.dump(found, file)
        return 1
    return 0


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
