"""The real process under hostile requests, alone and behind the proxy."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tools.hostile import BODIES, CASES, GOOD, MEGABYTE, REFUSED, bad_chunk, bad_chunks
from tools.nginx import proxying
from tools.process import serving
from tools.wire import Case, play

from cerberank_benchmarks.clients.load import Load, request_of

HASTE = {
    "client_header_timeout 10s": "client_header_timeout 3s",
    "client_body_timeout 10s": "client_body_timeout 3s",
    "send_timeout 30s": "send_timeout 1s",
    "keepalive_timeout 30s;\n    keepalive_requests": "keepalive_timeout 5s;\n    keepalive_requests",
    "rate=100r/s": "rate=10000r/s",
}
"""Texts of the proxy's configuration with shorter times, which a busy machine still keeps.

Shares of an address are `tests/deploy/test_nginx.py`'s.
"""

TOKEN = "a-token-for-the-admin-port"
MARK = "a mark"
"""A text in the neighbour's question, which must not appear in any log."""
QUESTION = {
    "question": "how tall is the tower ?",
    "candidates": [MARK, *(f"the tower of number {n} was built in paris and is {n} metres tall" for n in range(1, 4))],
}
LARGE = MEGABYTE // 2
"""Requests of more bytes are sent four at a time, for which memory is bounded; the others eight at a time."""


@pytest.mark.parametrize("place", ["alone", "behind"])
def test_every_hostile_request_gets_its_outcome_and_neighbours_theirs(
    tiny_checkpoint: Path, tmp_path: Path, place: str
) -> None:
    """Statuses, their number and the connection's end; meanwhile a neighbour is answered, and memory stays.

    None of them counts as an internal error, also on the admin port.
    """
    cases = [*CASES, *BODIES, *bad_chunks()]
    settings = {"CERBERANK_LOG_LEVEL": "debug", "CERBERANK_ADMIN_TOKEN": TOKEN, "CERBERANK_ADMIN_PORT": "0"}
    with serving(tiny_checkpoint, tmp_path / "log", **settings) as service, ExitStack() as stack:
        url, behind = service.url, place == "behind"
        if behind:
            url = stack.enter_context(proxying(tmp_path / "nginx", [service.url], HASTE)).url
        client = stack.enter_context(httpx.Client(base_url=url, timeout=60))
        first = [client.post("/v1/rank", json=QUESTION).json()["results"] for _ in range(50)]
        client.post("/v1/rank", content=b" " * 3 * MEGABYTE + GOOD).raise_for_status()
        before = service.megabytes
        neighbour = Load(url, patience=60.0)
        # Another address, as an attacker would have.
        few, many = (stack.enter_context(ThreadPoolExecutor(threads)) for threads in (4, 8))
        with neighbour.meanwhile(neighbour.in_loops([itertools.repeat(request_of(QUESTION))], pause=0.05)):
            allowed = [case.outcomes(behind=behind) for case in cases]
            playing = [
                (few if len(case.sent) > LARGE else many).submit(play, url, case, outcomes, source="127.0.0.2")
                for case, outcomes in zip(cases, allowed, strict=True)
            ]
            seen = [each.result() for each in playing]
        wrong = [each for each in zip(cases, seen, allowed, strict=True) if each[1] not in each[2]]
        assert [(case.name, outcome, outcomes) for case, outcome, outcomes in wrong] == []
        assert client.post("/v1/rank", json=QUESTION).json()["results"] == first[0]
        assert {answer.status for answer in neighbour.answers} == {200}
        assert len(neighbour.answers) > 20
        assert service.megabytes - before <= 40  # 21 to 29 in eight runs on a busy machine
        assert service.admin_url is not None
        for lines in ((), (b"Authorization: Bearer " + TOKEN.encode(),)):
            sent = bad_chunk(b"GET", b"/v1/models", *lines)
            assert (
                play(service.admin_url, Case(name="admin", sent=sent, alone=REFUSED, behind=""), [REFUSED]) == REFUSED
            )
        time.sleep(1.0)  # the exposition is cached for a second
        assert 'errors_total{kind="internal"} 0.0' in httpx.get(f"{service.url}/metrics").text
    log = service.log.read_text()
    assert MARK not in log
    assert "Traceback" not in log
