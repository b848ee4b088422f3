"""Measures a client's latency while others send hostile requests at a given rate: `python -m tools.rates`.

The measured client is called the neighbour. Phases without and with an attack alternate, because the machine's speed
varies. Attackers create their bodies before a phase begins and run in Linux' idle class, because in production they run
on other machines.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_service.settings import Settings
from tools.oversized import binary_tensors
from tools.process import ROOT, another_machine, serving
from tools.siege import Neighbour, ask

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
FRESH = b"a number"
"""Stands for a number that is new in each request, so that no text is in the token cache."""
MOST_BYTES = Settings.model_fields["max_body_bytes"].default
TEXTS = [f"the tower of number {number} is {number} metres tall" for number in range(4)]


def wrong_lists() -> list[bytes]:
    """Bodies of 390 KB with lists of 97,000 wrong values (finding H1)."""
    wrong = ["x"] * 97_000
    native = {"question": "q", "candidates": TEXTS, "drop_ratio": wrong}
    cohere = {"query": "q", "documents": TEXTS, "rank_fields": wrong}
    return [json.dumps(each, separators=(",", ":")).encode() for each in (native, cohere)]


def largest() -> list[bytes]:
    """Bodies of the largest allowed size that take long to parse or to refuse (finding M4)."""
    fields = b"{%s}" % b",".join(b'"%090x":0' % number for number in range(40_000))
    objects = b'{"question":"q","candidates":[%s]}' % b",".join([b"{}"] * 20_000)
    numbers = b"[%s]" % b",".join([b"1"] * (MOST_BYTES // 2 - 1))
    text = b'{"question":"q","candidates":["%s"],"deadline_ms":-1}' % (b"\\u00e9" * (MOST_BYTES // 6 - 20))
    strings = b'["%s",%s]' % (b"," * 100_100, b'""' * (MOST_BYTES // 2 - 60_000))
    bodies = (fields, objects, numbers, text, strings, fields, text, strings)
    return [each.ljust(MOST_BYTES) for each in bodies]


def long_texts() -> bytes:
    """A body of 4 MB of different long texts with a deadline of 1 ms, so that the work for it is wasted."""
    texts = [f"{number} " + "the tower is 330 metres tall and stands in paris " * 800 for number in range(105)]
    body = {"question": "how tall ?", "candidates": texts, "windows": "best", "deadline_ms": 1}
    return json.dumps(body).encode()


def cut_texts() -> bytes:
    """A body of 0.25 MB that is tokenised whole, every dot a token, and then refused because a text does not fit."""
    texts = ["." * 330 + f"{number} {FRESH.decode()}" for number in range(600)]
    return json.dumps({"query": "q", "truncate": False, "texts": [*texts, "." * 42_000]}).encode()


def binary_tensor() -> tuple[bytes, Mapping[str, str]]:
    """A body of 4.16 MB with a binary tensor of 1,040,000 empty texts, and its headers (finding 2)."""
    (made,) = binary_tensors({"paths": ["/infer"]}, 4_160_000)
    return made.body, made.headers


def _repeat(
    url: str, path: str, bodies: Sequence[bytes], every: float, headers: Mapping[str, str] = NO_HEADERS
) -> list[Callable[[], object]]:
    """A client for each body, which sends it repeatedly, at most once in `every` seconds."""

    def client(body: bytes) -> Callable[[], object]:
        def send() -> None:
            with httpx.Client(base_url=url, timeout=60) as asking:
                while True:
                    begun = time.monotonic()
                    with suppress(httpx.TransportError):
                        fresh = body.replace(FRESH, b"%d" % random.getrandbits(32))
                        asking.post(path, content=fresh, headers=headers) if body else asking.get(path)
                    time.sleep(max(0.0, begun + every - time.monotonic()))

        return send

    return [client(body) for body in bodies]


def _binary(url: str, clients: int, every: float) -> list[Callable[[], object]]:
    body, headers = binary_tensor()
    return _repeat(url, "/v2/models/cerberank-mini/infer", [body] * clients, every, headers)


ATTACKS: Mapping[str, Callable[[str], list[Callable[[], object]]]] = {
    "wrong lists, 2 x 0.4 MB/s": lambda url: [
        *_repeat(url, "/v1/rank", wrong_lists()[:1], 1.0),
        *_repeat(url, "/v1/rerank", wrong_lists()[1:], 1.0),
    ],
    "openapi.json, 25/s": lambda url: _repeat(url, "/openapi.json", [b""], 0.04),
    "metrics, 25/s": lambda url: _repeat(url, "/metrics", [b""], 0.04),
    "8 bodies of 4 MB, every 2 s": lambda url: _repeat(url, "/v1/rank", largest(), 2.0),
    "4 binary tensors of 4 MB, every 5 s": lambda url: _binary(url, 4, 5.3),
    "16 binary tensors of 4 MB, every 20 s": lambda url: _binary(url, 16, 21.0),
    "8 clients of 0.25 MB that is cut": lambda url: _repeat(url, "/rerank", [cut_texts()] * 8, 0.0),
    "32 clients of 0.25 MB that is cut": lambda url: _repeat(url, "/rerank", [cut_texts()] * 32, 0.0),
    "4 clients of 4 MB that is due at once": lambda url: _repeat(url, "/v1/rank", [long_texts()] * 4, 0.0),
    "16 clients of 4 MB that is due at once": lambda url: _repeat(url, "/v1/rank", [long_texts()] * 16, 0.0),
}


def attack(url: str, name: str) -> None:
    """Attack until the process is killed.

    The bodies are created first; then a line is written to standard output, and the attack begins after a line on
    standard input.
    """
    clients = ATTACKS[name](url)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    for client in clients:
        threading.Thread(target=client, daemon=True).start()
    time.sleep(3600.0)


def question(candidates: int, size: int) -> dict[str, Any]:
    """The neighbour's question, with an additional candidate of `size` bytes unless that is 0."""
    asked = ask(candidates)
    return asked | {"candidates": [*asked["candidates"], "x " * (size // 2)]} if size else asked


def measure(candidates: int, attacks: Sequence[str], rounds: int, seconds: float, size: int) -> None:
    """Print, for each attack, the neighbour's p99 without and with the attack, and the service's memory."""
    with tempfile.TemporaryDirectory() as folder, serving(default_checkpoint(), Path(folder) / "log") as service:
        for name in attacks:
            quiet, meanwhile = (Neighbour(service.url, question(candidates, size)) for _ in range(2))
            before = None
            for _ in range(rounds):
                with quiet.asking():
                    time.sleep(seconds)
                before = before or service.megabytes
                _under_attack(service.url, name, meanwhile, seconds)
            time.sleep(2.0)
            sys.stdout.write(
                f"{candidates} candidates, {name}: p99 {quiet.p99():.1f} -> {meanwhile.p99():.1f} ms "
                f"({meanwhile.p99() / quiet.p99():.2f} times, {len(quiet.seconds)} and {len(meanwhile.seconds)} "
                f"answers), got {sorted(meanwhile.statuses)}, memory {before:.0f} to {service.megabytes:.0f} MB"
                "\n"
            )
            sys.stdout.flush()


def _under_attack(url: str, name: str, neighbour: Neighbour, seconds: float) -> None:
    command = [sys.executable, "-m", "tools.rates", "--attack", name, "--url", url]
    with another_machine(yielding=True) as elsewhere:
        attacker = elsewhere.submit(
            lambda: subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        ).result()
    try:
        assert attacker.stdin is not None
        assert attacker.stdout is not None
        attacker.stdout.readline()
        attacker.stdin.write(b"begin\n")
        attacker.stdin.flush()
        with neighbour.asking():
            time.sleep(seconds)
    finally:
        attacker.kill()
        attacker.wait()


def main() -> None:
    """Measure, or attack on behalf of a measuring process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, nargs="+", default=[4, 200])
    parser.add_argument("--bytes", type=int, default=0, help="one of its candidates is so long")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        attack(arguments.url, arguments.attack)
    for candidates in arguments.candidates:
        measure(candidates, arguments.attacks, arguments.rounds, arguments.seconds, arguments.bytes)


if __name__ == "__main__":
    main()
