"""Bytes on a connection of their own, and what came back: statuses, and what became of the connection."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import urlsplit

PIECE = 65536
QUIET_SECONDS = 1.0
"""So long nothing more must come."""
LONGEST_SECONDS = 30.0
"""So long the answers may take that must come."""
NEXT = b"GET /health/live HTTP/1.1\r\nHost: next\r\nConnection: close\r\n\r\n"
"""The bytes that a connection which stays open must answer, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One connection, and what may come of it.

    An outcome is the statuses of all answers in their order, `200x3` for three equal ones, then the connection's state:
    `closed`; `open`, it then answers NEXT once; `waits`, it stays open without an answer, as within an unfinished
    request. Several possible outcomes are separated by `|`.
    """

    name: str
    sent: bytes
    alone: str
    """From the process itself."""
    behind: str
    """Through the proxy, whose time-outs are shortened to three seconds."""
    every: float = 0.0
    """Seconds between two bytes; 0 sends all at once."""
    reads: bool = True
    """True if the client reads; if not, only the connection's state is looked at."""

    def outcomes(self, *, behind: bool) -> list[str]:
        """The possible outcomes."""
        return [each.strip() for each in (self.behind if behind else self.alone).split("|")]


def play(url: str, case: Case, outcomes: list[str], *, source: str = "127.0.0.1") -> str:
    """Send a case to the server at `url` from the address `source`; returns the outcome.

    A connection that stays open is asked NEXT, unless these answers and `waits` are one of the possible `outcomes`.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 80), 10.0, source_address=(source, 0)) as connection:
        _send(connection, case)
        if not case.reads:
            return _state_without_reading(connection, wait=outcomes == ["closed"])
        fewest = min(len(_statuses_of(outcome)) for outcome in outcomes)
        received, closed = _receive(connection, fewest, wait_closed=all("closed" in each for each in outcomes))
        answers = responses(received)
        state = "closed" if closed else "waits"
        if closed or rendered(answers, state) in outcomes:
            return rendered(answers, state)
        _send_all(connection, NEXT)
        after, closed = _receive(connection, 1, wait_closed=True)
        return rendered(answers, "open" if responses(after) == [200] and closed else f"desynchronised {after[:200]!r}")


def rendered(statuses: list[int], state: str) -> str:
    """An outcome as cases write it."""
    runs = [(status, len(list(run))) for status, run in groupby(statuses)]
    return " ".join([*(f"{status}x{count}" if count > 1 else str(status) for status, count in runs), state])


def responses(received: bytes) -> list[int]:
    """The statuses of complete answers, interim ones left out; -1 for bytes that are none."""
    found: list[int] = []
    while received:
        head, separator, rest = received.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        if not separator or status is None:
            return [*found, -1]
        if status[1].startswith(b"1"):
            received = rest
            continue
        length = _length(head, rest)
        if length > len(rest):
            return [*found, -1]
        found.append(int(status[1]))
        received = rest[length:]
    return found


def _length(head: bytes, rest: bytes) -> int:
    """Bytes of the body that begins `rest`; without a length or chunks it ends with the connection."""
    if found := re.search(rb"(?i)\r\ncontent-length: (\d+)", head):
        return int(found[1])
    if re.search(rb"(?i)\r\ntransfer-encoding: chunked", head):
        position = 0
        while size := re.match(rb"([0-9a-fA-F]+)\r\n", rest[position:]):
            position += size.end() + int(size[1], 16) + 2
            if int(size[1], 16) == 0:
                return position
        return len(rest) + 1
    return len(rest)


def _statuses_of(outcome: str) -> list[int]:
    counts = re.findall(r"(\d{3})(?:x(\d+))?", outcome)
    return [int(status) for status, count in counts for _ in range(int(count or 1))]


def _send(connection: socket.socket, case: Case) -> None:
    if case.every == 0.0:
        _send_all(connection, case.sent)
    for position in range(len(case.sent) if case.every else 0):
        _send_all(connection, case.sent[position : position + 1])
        time.sleep(case.every)


def _send_all(connection: socket.socket, content: bytes) -> None:
    try:
        connection.sendall(content)
    except (ConnectionError, TimeoutError):  # it answered, or gave up, before it had read all
        return


def _receive(connection: socket.socket, fewest: int, *, wait_closed: bool) -> tuple[bytes, bool]:
    """All that comes, and whether the connection was closed; waits for `fewest` answers, and then for quiet."""
    received, end = b"", time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < end:
        expects = wait_closed or len(responses(received)) < fewest
        connection.settimeout(LONGEST_SECONDS if expects else QUIET_SECONDS)
        try:
            piece = connection.recv(PIECE)
        except TimeoutError:
            break
        except ConnectionError:
            return received, True
        if not piece:
            return received, True
        received += piece
    return received, False


def _state_without_reading(connection: socket.socket, *, wait: bool) -> str:
    """A check that the server gives up on a client that does not read: it then resets the connection."""
    end = time.monotonic() + (LONGEST_SECONDS if wait else QUIET_SECONDS)
    connection.setblocking(False)
    while time.monotonic() < end:
        try:
            connection.send(b"x")
        except BlockingIOError:
            pass
        except OSError:
            return "closed"
        time.sleep(0.05)
    return "waits"
