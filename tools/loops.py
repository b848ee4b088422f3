"""Loads a real service with sixteen clients in a closed loop, beside a busy core: `python -m tools.loops`.

Prints, for each size of question, the answers, the refusals, and the time from the request to the answer. With
`--queue-seconds 3600` nothing is refused; a question's wait is then its time minus its time alone.

`python -m tools.loops --drawn --busy 0 --seconds 20` draws the size of every question: 4, 4, 50 or 200 candidates.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np

from cerberank_benchmarks.clients.load import Answer, Load, Request, request_of
from cerberank_benchmarks.clients.server import cerberank_server
from cerberank_benchmarks.workload import WORDS
from tools.overload import BOUND, DRAWN, LOOPS

WORDS_A_CANDIDATE = 20


def _questions(sizes: Sequence[int], seed: int) -> Iterator[Request]:
    rng = random.Random(seed)
    while True:
        texts = [" ".join(rng.choices(WORDS, k=WORDS_A_CANDIDATE)) for _ in range(rng.choice(sizes))]
        yield request_of({"question": f"which tower number {rng.random()} was built first", "candidates": texts})


def _answers(
    url: str, clients: Sequence[Sequence[int]], seconds: float, refused: Literal["wait", "go on"] = "wait"
) -> list[Answer]:
    load = Load(url, seconds=seconds, refused=refused)
    asyncio.run(load.in_loops([_questions(sizes, seed) for seed, sizes in enumerate(clients)]))
    return load.answers


def _row(name: str, answers: Sequence[Answer]) -> str:
    took, refusals = [each.seconds for each in answers if each.status == 200], sum(each.refusals for each in answers)
    times = np.percentile(took or [0.0], (50, 99, 100)).tolist()
    return f"{name:>6} {len(took):>8} {refusals:>8} {times[0]:>8.2f} {times[1]:>8.2f} {times[2]:>8.2f}"


def main() -> None:
    """Measure each size alone, and then all sizes together."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, help="default: the bundled one")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--busy", type=int, default=1, help="processes that keep a core busy beside the service")
    parser.add_argument("--queue-seconds", type=float, default=BOUND)
    parser.add_argument("--clients", type=int, nargs="+", help="candidates of each client's questions")
    parser.add_argument(
        "--drawn", action="store_true", help="draw every question's candidates; clients do not repeat refused questions"
    )
    options = parser.parse_args()
    clients = [[size] for size in options.clients] if options.clients else DRAWN if options.drawn else LOOPS
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = {"precision": options.precision, "queue_seconds": options.queue_seconds}
        server = stack.enter_context(cerberank_server(options.checkpoint, scratch, **settings))
        for _ in range(options.busy):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(busy.kill)
        url = str(server.client.base_url)
        lines = ["  size  answers refusals    p50 s    p99 s    max s"]
        for size in (known := sorted({size for sizes in clients for size in sizes})):
            lines.append(_row(f"{size} al.", _answers(url, [[size]], 5.0)))
        answers = _answers(url, clients, options.seconds, "go on" if options.drawn else "wait")
        for size in known:
            lines.append(_row(str(size), [each for each in answers if each.candidates == size]))
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
