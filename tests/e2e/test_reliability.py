"""The promises of docs/reliability.md, on the real process."""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import time
from pathlib import Path

import httpx
import pytest
from tests.service.observe import samples
from tools.process import Process, serving

from cerberank_benchmarks.clients.load import Load, main, request_of

QUESTION = "how tall is the tower ?"
LARGE = {"question": QUESTION, "candidates": [f"{number} word " + "word " * (number % 30) for number in range(5000)]}
SMALL = {"question": QUESTION, "candidates": ["330 metres", "it was built in paris", "a city"]}
TOKENS = "cerberank_tokens_total{model=random-tiny,stage=0,version=1}"
WASTED = "cerberank_wasted_tokens_total{model=random-tiny,version=1}"
CANCELLED = "cerberank_cancelled_requests_total{model=random-tiny,version=1}"


def until(client: httpx.Client, series: str, wanted: float) -> dict[str, float]:
    """Poll the metrics until a series has at least (0: at most) the wanted value."""
    end = time.monotonic() + 60
    values = samples(client)
    while values[series] < wanted if wanted else values[series] > 0:
        assert time.monotonic() < end, f"{series} is {values[series]}"
        time.sleep(0.01)
        values = samples(client)
    return values


def test_clients_that_hang_up_free_the_engine(shared_service: Process) -> None:
    """Served before, gone in the middle, served after: what the gone ones held is dropped, not computed."""
    with httpx.Client(base_url=shared_service.url, timeout=60) as client:
        before = client.post("/v1/rank", json=SMALL).raise_for_status().json()["results"]
        time.sleep(1.0)  # then the metrics are made anew
        started = samples(client)
        time.sleep(1.0)  # and show what is queued
        body = httpx.Request("POST", shared_service.url, json=LARGE).content
        head = f"POST /v1/rank HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        address = (httpx.URL(shared_service.url).host, httpx.URL(shared_service.url).port)
        sockets = [socket.create_connection(address) for _ in range(8)]
        for each in sockets:
            each.sendall(head + body)
        time.sleep(0.1)
        until(client, "cerberank_queued_tokens{}", 1)
        for each in sockets:
            each.close()
        values = until(client, "cerberank_queued_tokens{}", 0)
        values = until(client, "cerberank_requests_in_flight{}", 0)
        assert client.post("/v1/rank", json=SMALL).raise_for_status().json()["results"] == before
    ran, wasted, cancelled = (values[each] - started[each] for each in (TOKENS, WASTED, CANCELLED))
    assert cancelled >= 1
    assert wasted <= ran * 3
    whole = 5000 * 8 * 10  # a pair has more than ten tokens
    assert ran < whole


def test_under_overload_every_request_is_answered_once(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Clients that obey Retry-After all get served in the end; what was refused was told when to come back."""
    body = {"question": QUESTION, "candidates": LARGE["candidates"][:400]}
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_QUEUE_SECONDS="0.1") as service:
        load = Load(service.url, refused="wait", patience=120.0)
        asyncio.run(load.at_times(itertools.repeat(request_of(body)), iter([0.0] * 16)))
        with httpx.Client(base_url=service.url) as client:
            until(client, "cerberank_queued_tokens{}", 0)
    assert [answer.fate for answer in load.answers] == ["answered"] * 16
    assert sum(answer.refusals for answer in load.answers) > 0


def test_a_trial_s_users_are_answered(shared_service: Process, capsys: pytest.CaptureFixture[str]) -> None:
    """The generator alone, as `docker compose --profile load` runs it, with questions of a few sizes."""
    main([shared_service.url, "--clients=3", "--candidates=4", "--pause=0", "--seconds=1"])
    assert re.fullmatch(r"1 s: answers by status \{200: \d+\}, median \d+ ms, p99 \d+ ms\n", capsys.readouterr().out)
