"""Measures an ordinary client's latency while a service gets hostile requests: `python -m tools.siege`.

The ordinary client is called the neighbour. `--candidates` is the size of its question. `--rounds` is the number of
times that every hostile case is sent; a p99 needs hundreds of answers. `--behind` sends all requests through the proxy
of `deploy/nginx`, the hostile ones from another address.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cerberank_benchmarks.clients.load import Answer, Load, request_of
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.output import say
from tools.hostile import BODIES, CASES, bad_chunks
from tools.nginx import proxying
from tools.process import ROOT, Process, another_machine, serving
from tools.wire import play

SETTINGS = {"CERBERANK_LOG_LEVEL": "debug"}
MARK = "a mark"
"""A text in the neighbour's question, which must not appear in any log."""


def ask(candidates: int) -> dict[str, Any]:
    """The neighbour's question: this number of different texts, one of which is `MARK`."""
    texts = [f"the tower of number {n} was built in paris and is {n} metres tall" for n in range(1, candidates)]
    return {"question": "how tall is the tower ?", "candidates": [MARK, *texts]}


@dataclass
class Neighbour:
    """A client that repeats its question."""

    url: str
    body: dict[str, Any] = field(default_factory=lambda: ask(4))
    pause: float = 0.01
    answers: list[Answer] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """The times until its answers."""
        return [answer.seconds for answer in self.answers]

    @property
    def statuses(self) -> set[int]:
        """The statuses of its answers."""
        return {answer.status for answer in self.answers}

    def asking(self) -> AbstractContextManager[None]:
        """Repeat the question during the block."""
        load = Load(self.url, patience=60.0, answers=self.answers)
        return load.meanwhile(load.in_loops([itertools.repeat(request_of(self.body))], pause=self.pause))

    def p99(self) -> float:
        """The 99th percentile of the times until its answers, in milliseconds."""
        return float(np.percentile(self.seconds, 99)) * 1000.0


def main() -> None:
    """Send all hostile cases to a service with the bundled checkpoint, and print the neighbour's latencies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--behind", action="store_true")
    parser.add_argument("--attack", metavar="URL", help="be the attacker alone, as the siege starts it")
    arguments = parser.parse_args()
    if arguments.attack:
        _attack(arguments.attack, behind=arguments.behind)
        return
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        service = stack.enter_context(serving(default_checkpoint(), folder / "log", **SETTINGS))
        url = service.url
        if arguments.behind:
            url = stack.enter_context(proxying(folder / "nginx", [service.url])).url
        alone, besieged = (Neighbour(url, ask(arguments.candidates)) for _ in range(2))
        before = None
        for _ in range(arguments.rounds):  # phases alternate, because the machine's speed varies
            with alone.asking():
                time.sleep(20.0)
            before = before or service.megabytes
            _besiege_from_elsewhere(url, service, besieged, behind=arguments.behind)
        say(f"memory before and after: {before or 0.0:.1f} MB, {service.megabytes:.1f} MB")
        say(f"neighbour's answers before and meanwhile: {len(alone.seconds)}, {len(besieged.seconds)}")
        say(f"neighbour's p99 before and meanwhile: {alone.p99():.1f} ms, {besieged.p99():.1f} ms")
        say(f"neighbour's statuses: {sorted(alone.statuses | besieged.statuses)}")


def _attack(url: str, *, behind: bool) -> None:
    """Print a line when ready, wait for a line of input, then send every case and print each outcome as JSON."""
    say("ready")
    sys.stdin.readline()
    for case in (*CASES, *BODIES, *bad_chunks()):
        outcome = play(url, case, case.outcomes(behind=behind), source="127.0.0.2")
        say(json.dumps([case.name, outcome, outcome in case.outcomes(behind=behind)]))


def _besiege_from_elsewhere(url: str, service: Process, neighbour: Neighbour, *, behind: bool) -> None:
    """Send all cases from another process, which only takes processor time that service and neighbour leave.

    This imitates attackers on machines of their own.
    """
    command = [sys.executable, "-m", "tools.siege", "--attack", url, *(["--behind"] if behind else [])]
    with another_machine(yielding=True) as elsewhere:
        attackers = elsewhere.submit(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        ).result()
    assert attackers.stdin is not None
    assert attackers.stdout is not None
    attackers.stdout.readline()  # wait until it has imported and created everything
    try:
        with neighbour.asking():
            attackers.stdin.write("begin\n")
            attackers.stdin.flush()
            seen = len(neighbour.seconds)
            for line in attackers.stdout:
                name, outcome, allowed = json.loads(line)
                slowest = 1000.0 * max(neighbour.seconds[seen:], default=0.0)
                seen = len(neighbour.seconds)
                say(
                    f"{'' if allowed else 'NOT ALLOWED '}{name[:48]:48} {outcome[:24]:24} {service.megabytes:.0f} MB, "
                    f"slowest answer {slowest:.0f} ms"
                )
    except BaseException:
        attackers.kill()
        raise
    if attackers.wait() != 0:
        raise RuntimeError("the attackers failed")


if __name__ == "__main__":
    main()
