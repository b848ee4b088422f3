"""Closed-loop clients in several processes, because a single Python process cannot load a fast server fully.

A child process reads its job from stdin, warms up, waits for the moment at which all start, and reports the latencies
of its requests. It imports no library, so that it starts fast.
"""

from __future__ import annotations

import http.client
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace

from cerberank_models.python_process import python_command

MOST_PROCESSES = 8
START_SECONDS = 1.0
"""Seconds for processes to start and to warm up; one that takes longer begins later."""
VARIANTS = 4
"""Number of different questions in a job whose texts repeat."""
PARSED = 8
"""A client parses one in this many answers; for the others it only checks the status."""
SERIAL_WORDS = 5
"""Number of words at the beginning of a candidate that encode its number, so that all candidates differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The work of some clients."""

    port: int
    clients: int
    candidates: int
    seconds: float
    repeated: bool
    """True if texts are repeated, so that a server may cache their tokens."""
    vocabulary: tuple[str, ...]
    """Words that are one token each."""
    question_words: int
    candidate_words: int
    seed: int
    first_client: int = 0
    start: float = 0.0
    """The moment of the first requests, by the monotonic clock, which all processes share."""


@dataclass(kw_only=True, slots=True)
class Outcome:
    """The outcome of the requests; times are on the monotonic clock."""

    seconds: list[float] = field(default_factory=list)
    """The latency of each answered request."""
    failed: int = 0
    began: float = float("inf")
    ended: float = 0.0
    encode_ms: list[float] = field(default_factory=list)
    compute_ms: list[float] = field(default_factory=list)
    """The server's own compute times in the parsed answers; likewise `encode_ms`."""
    processor_seconds: float = 0.0

    def add(self, more: Outcome) -> None:
        """Add the outcome of other clients."""
        self.seconds += more.seconds
        self.failed += more.failed
        self.began = min(self.began, more.began)
        self.ended = max(self.ended, more.ended)
        self.encode_ms += more.encode_ms
        self.compute_ms += more.compute_ms
        self.processor_seconds += more.processor_seconds


def ask_from_processes(job: Job, *, patience: float) -> tuple[Outcome, int]:
    """Run the job in up to `MOST_PROCESSES` processes; returns the outcome and their number.

    Raises RuntimeError when a process fails, for example because its first request is not answered, and
    subprocess.TimeoutExpired when processes were killed after `patience` seconds.
    """
    count = min(job.clients, MOST_PROCESSES)
    shares = [(job.clients + place) // count for place in range(count)]
    firsts = [job.first_client + sum(shares[:place]) for place in range(count)]
    job = replace(job, start=time.monotonic() + START_SECONDS)
    jobs = [replace(job, clients=share, first_client=first) for share, first in zip(shares, firsts, strict=True)]
    outcome = Outcome()
    with ThreadPoolExecutor(count) as pool:
        for part in pool.map(_in_process, jobs, [patience] * count):
            outcome.add(part)
    return outcome, count


def _in_process(job: Job, patience: float) -> Outcome:
    command, content = python_command("cerberank_benchmarks.clients.processes"), json.dumps(asdict(job))
    child = subprocess.run(command, input=content, capture_output=True, text=True, timeout=patience, check=False)
    if child.returncode:
        raise RuntimeError(f"a process failed: {child.stderr[-500:]}")
    return Outcome(**json.loads(child.stdout))


def bodies(job: Job, client: int) -> Iterator[bytes]:
    """An endless sequence of a client's request bodies; repeated bodies are the same for all clients."""
    rng = random.Random(f"{job.seed} {0 if job.repeated else client + 1}")
    tails = [" ".join(rng.choices(job.vocabulary, k=job.candidate_words - SERIAL_WORDS)) for _ in range(64)]
    serial = rng.randrange(len(job.vocabulary) ** SERIAL_WORDS)

    def body() -> bytes:
        nonlocal serial
        question = " ".join(rng.choices(job.vocabulary, k=job.question_words))
        texts = [f"{_number(serial + place, job.vocabulary)} {tails[place % 64]}" for place in range(job.candidates)]
        serial += job.candidates
        return json.dumps({"question": question, "candidates": texts}).encode()

    if not job.repeated:
        while True:
            yield body()
    variants = [body() for _ in range(VARIANTS)]
    while True:
        yield from variants


def _number(serial: int, vocabulary: Sequence[str]) -> str:
    words = []
    for _ in range(SERIAL_WORDS):
        serial, digit = divmod(serial, len(vocabulary))
        words.append(vocabulary[digit])
    return " ".join(words)


class _Client(threading.Thread):
    """One client, which sends its next request on its connection as soon as the last one is answered."""

    def __init__(self, job: Job, number: int) -> None:
        super().__init__(daemon=True)
        self._job = job
        self._bodies = bodies(job, number)
        self._connection = http.client.HTTPConnection("127.0.0.1", job.port, timeout=120)
        self.outcome = Outcome()

    def warm_up(self) -> None:
        """Send all repeated requests, or one request. Raises RuntimeError if one is not answered."""
        for _ in range(VARIANTS if self._job.repeated else 1):
            status, content = self._ask(next(self._bodies))
            if status != 200:
                raise RuntimeError(f"the server answered {status}: {content[:300]!r}")

    def run(self) -> None:
        outcome, content = self.outcome, next(self._bodies)
        outcome.began = time.monotonic()
        end = outcome.began + self._job.seconds
        while True:
            started = time.monotonic()
            status, answer = self._ask(content)
            outcome.ended = time.monotonic()
            if status == 200:
                outcome.seconds.append(outcome.ended - started)
                if len(outcome.seconds) % PARSED == 1:
                    self._read(answer)
            else:
                outcome.failed += 1
            if outcome.ended >= end:
                return
            content = next(self._bodies)

    def _ask(self, content: bytes) -> tuple[int, bytes]:
        try:
            self._connection.request("POST", "/v1/rank", content)
            response = self._connection.getresponse()
            return response.status, response.read()
        except (http.client.HTTPException, OSError) as error:
            self._connection.close()
            return 0, repr(error).encode()

    def _read(self, answer: bytes) -> None:
        document = json.loads(answer)
        if len(document["results"]) != self._job.candidates:
            self.outcome.failed += 1
        self.outcome.encode_ms.append(document["timing_ms"]["encode"])
        self.outcome.compute_ms.append(document["timing_ms"]["compute"])


def main() -> None:
    """Run a job in a child process."""
    fields = json.load(sys.stdin)
    job = Job(**fields | {"vocabulary": tuple(fields["vocabulary"])})
    clients = [_Client(job, job.first_client + number) for number in range(job.clients)]
    for client in clients[:1] if job.repeated else clients:
        client.warm_up()
    time.sleep(max(0.0, job.start - time.monotonic()))
    used = time.process_time()
    for client in clients:
        client.start()
    outcome = Outcome()
    for client in clients:
        client.join()
        outcome.add(client.outcome)
    outcome.processor_seconds = time.process_time() - used
    sys.stdout.write(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
