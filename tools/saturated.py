"""Measures pushes of versions to a saturated service: `python -m tools.saturated`.

In a container a thread cannot raise its priority again after lowering it. To measure this case, run
`setpriv --bounding-set -sys_nice python -m tools.saturated`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cerberank_benchmarks.clients.load import Load, request_of
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore
from tools.process import serving
from tools.siege import ask
from tools.versions import versions_of

REST_SECONDS = 6.0
LONGEST_SECONDS = 300.0


def main() -> None:
    """Print the time of every push, and the clients' latencies before and during it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--pushes", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store, bundled = FolderStore(folder / "store"), default_checkpoint()
        versions = versions_of(bundled, folder, [str(number) for number in range(arguments.pushes + 1)])
        pushed = [read_checkpoint(path) for path in versions.values()]
        _push(store, pushed[0])
        settings = {"CERBERANK_STORE": str(folder / "store"), "TMPDIR": str(folder)}
        with serving(Path(), folder / "log", **settings) as service:
            load = Load(service.url, patience=LONGEST_SECONDS)
            clients = [itertools.repeat(request_of(ask(arguments.candidates)))] * arguments.clients
            with load.meanwhile(load.in_loops(clients)):
                for checkpoint in pushed[1:]:
                    seen = len(load.answers)
                    while len(load.answers) == seen:
                        time.sleep(REST_SECONDS)
                    _time_push(store, checkpoint, load)


def _push(store: FolderStore, checkpoint: Checkpoint) -> None:
    store.push(checkpoint)
    store.move_label(checkpoint.config.name, "stable", checkpoint.manifest.version)


def _time_push(store: FolderStore, checkpoint: Checkpoint, load: Load) -> None:
    _push(store, checkpoint)
    began, version = load.now, checkpoint.manifest.version
    while not any(answer.version == version for answer in load.answers[-50:]):
        if load.now > began + LONGEST_SECONDS:
            raise TimeoutError(f"{version} does not answer")
        time.sleep(0.05)
    taken = load.now - began
    before = [answer.seconds for answer in load.answers if answer.ended < began]
    meanwhile = [answer.seconds for answer in load.answers if answer.ended >= began]
    sys.stdout.write(
        f"from the push to an answer {taken:.1f} s; an answer took {median(before):.2f} s before and "
        f"{median(meanwhile):.2f} s meanwhile; statuses {sorted({answer.status for answer in load.answers})}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
