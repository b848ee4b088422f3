"""Sends raw bytes on a connection, and reports the statuses that come back and the state of the connection."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import urlsplit

PIECE = 65536
QUIET_SECONDS = 1.0
"""Seconds without further bytes after which the answers count as complete."""
LONGEST_SECONDS = 30.0
"""Seconds to wait for expected answers."""
NEXT = b"GET /health/live HTTP/1.1\r\nHost: next\r\nConnection: close\r\n\r\n"
"""A request that a connection which stays open must answer exactly once."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The bytes to send on one connection, and the allowed outcomes.

    An outcome is the statuses of all answers in order (`200x3` stands for three equal ones), followed by the state of
    the connection:

    - `closed`: the server has closed it;
    - `open`: it answers NEXT once;
    - `waits`: it stays open without an answer to NEXT, as within an unfinished request.

    Several allowed outcomes are separated by `|`.
    """

    name: str
    sent: bytes
    alone: str
    """The allowed outcomes without a proxy."""
    behind: str
    """The allowed outcomes through the proxy, whose time-outs are shortened to three seconds."""
    every: float = 0.0
    """Seconds between two bytes; 0 sends all bytes at once."""
    reads: bool = True
    """True if the client reads answers; otherwise only the state of the connection is checked."""

    def outcomes(self, *, behind: bool) -> list[str]:
        """The allowed outcomes."""
        return [each.strip() for each in (self.behind if behind else self.alone).split("|")]


def play(url: str, case: Case, outcomes: list[str], *, source: str = "127.0.0.1") -> str:
    """Send a case to the server at `url` from the address `source`; returns the outcome.

    NEXT is sent on a connection that stays open, unless the answers followed by `waits` are one of the `outcomes`.
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
    """The outcome in the notation of `Case`."""
    runs = [(status, len(list(run))) for status, run in groupby(statuses)]
    return " ".join([*(f"{status}x{count}" if count > 1 else str(status) for status, count in runs), state])


def responses(received: bytes) -> list[int]:
    """The statuses of complete answers, without interim ones; -1 for bytes that are not an answer."""
    statuses: list[int] = []
    while received:
        head, separator, rest = received.partition(b"\r\n\r\n")
        status = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
        if not separator or status is None:
            return [*statuses, -1]
        if status[1].startswith(b"1"):
            received = rest
            continue
        length = _length(head, rest)
        if length > len(rest):
            return [*statuses, -1]
        statuses.append(int(status[1]))
        received = rest[length:]
    return statuses


def _length(head: bytes, rest: bytes) -> int:
    """Length of the body at the beginning of `rest`; without length or chunks it extends to the end."""
    if length := re.search(rb"(?i)\r\ncontent-length: (\d+)", head):
        return int(length[1])
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
        return
    for position in range(len(case.sent)):
        if not _send_all(connection, case.sent[position : position + 1]):
            return
        time.sleep(case.every)


def _send_all(connection: socket.socket, content: bytes) -> bool:
    """Send the bytes. False if the server answered or closed before it had read them all."""
    try:
        connection.sendall(content)
    except (ConnectionError, TimeoutError):
        return False
    return True


def _receive(connection: socket.socket, fewest: int, *, wait_closed: bool) -> tuple[bytes, bool]:
    """Receive until at least `fewest` answers have come and no more follow.

    Returns the bytes, and True if the connection was closed.
    """
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
    """`closed` if the server resets the connection of a client that does not read, otherwise `waits`."""
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
