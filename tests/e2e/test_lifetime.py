"""From start to SIGTERM: readiness, refusal of a bad checkpoint, and no accepted request lost."""

from __future__ import annotations

import itertools
import json
import signal
import socket
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.service.observe import wait_until
from tools.process import Process, launch, serving, start

from cerberank_benchmarks.clients.load import NO_ANSWER, Load, request_of
from cerberank_models.checkpoint.bundled import default_checkpoint

MANY = [f"{number} metres word " + "word " * (number % 30) for number in range(3000)]
BODY = {"question": "how tall ?", "candidates": MANY}


def statuses_of_a_stop(service: Process, body: dict[str, Any], *, clients: int) -> list[int]:
    """Statuses of the question from clients that ask until they are refused, while SIGTERM ends the busy service.

    Every 200 is checked to rank all candidates, every refusal to say when to come back, the service to end with code 0.
    """
    load = Load(service.url, refused="end", patience=120.0)
    with load.meanwhile(load.in_loops([itertools.repeat(request_of(body))] * clients)):
        wait_until_queued(service.url)
        service.terminate()
        assert service.process.wait(timeout=60) == 0
    for answer in load.answers:
        assert answer.fate == "answered" or answer.status != httpx.codes.OK
        assert answer.status in {httpx.codes.OK, NO_ANSWER} or int(answer.retry_after or 0) >= 1
    return [answer.status for answer in load.answers]


def wait_until_queued(url: str) -> None:
    """Until the metrics, which are up to a second old, show queued tokens."""
    end = time.monotonic() + 60
    with httpx.Client(base_url=url) as client:
        while True:
            lines = client.get("/metrics").text.splitlines()
            if float(next(line.split()[1] for line in lines if line.startswith("cerberank_queued_tokens "))) > 0:
                return
            assert time.monotonic() < end, "nothing was queued"
            time.sleep(0.005)


def test_sigterm_answers_what_was_accepted(service: Process) -> None:
    """Each of fifty requests in flight gets its answer or a refusal with Retry-After; the process ends with code 0."""
    statuses = statuses_of_a_stop(service, BODY | {"candidates": MANY[:400]}, clients=50)
    assert statuses.count(200) >= 1
    assert set(statuses) <= {200, 503, NO_ANSWER}


def test_what_is_not_done_after_the_drain_time_is_answered_with_503(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Nothing that was accepted is left without an answer."""
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_DRAIN_SECONDS="0") as service:
        statuses = set(statuses_of_a_stop(service, BODY, clients=8))
    assert 503 in statuses
    assert statuses <= {200, 503, NO_ANSWER}


def test_a_leaving_replica_answers_until_the_load_balancer_has_noticed(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """For the lame-duck time the probe fails and questions are answered; a second signal ends it early.

    Every answer ends its connection, to a request that began before the signal too: no client sends into a connection
    that closes.
    """
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_LAME_DUCK_SECONDS="600") as service:
        address = urlsplit(service.url).netloc
        waiting, asking, probing = (HTTPConnection(address, timeout=60) for _ in range(3))
        for client in (waiting, asking, probing):
            client.request("GET", "/health/live")
            answer = client.getresponse()
            answer.read()
            assert answer.getheader("Connection") is None
        body = json.dumps(BODY).encode()
        waiting.putrequest("POST", "/v1/rank")
        waiting.putheader("Content-Length", str(len(body)))
        waiting.endheaders(body[:1000])
        service.process.send_signal(signal.SIGHUP)  # which hooks that renew files send; it changes nothing
        service.terminate()
        wait_until(lambda: httpx.get(f"{service.url}/health/ready").status_code == 503)
        assert "SIGTERM was received: not ready for 600 seconds" in service.log.read_text()
        asking.request("POST", "/v1/rank", "{}")
        probing.request("GET", "/health/live")
        waiting.send(body[1000:])
        for client, status in ((asking, 422), (probing, 200), (waiting, 200)):
            raw = client.sock.dup()
            answer = client.getresponse()
            answer.read()
            assert (answer.status, answer.getheader("Connection")) == (status, "close")
            with raw:
                assert raw.recv(1) == b"", "the connection stays open"
            client.close()
        service.terminate()
        assert service.process.wait(timeout=60) == 0


@pytest.mark.parametrize(("ended_by", "attempts"), [("a signal", 4), ("an occupied port", 2)])
def test_an_end_while_the_model_loads_has_an_exit_code(tmp_path: Path, ended_by: str, attempts: int) -> None:
    """Several times, because the loader must be in a library's native code when the interpreter ends.

    The log names an occupied port, without a traceback.
    """
    codes, logs = [], []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for attempt in range(attempts):
            log = tmp_path / f"log-{attempt}"
            if ended_by == "a signal":
                service = start(default_checkpoint(), log)
                time.sleep(0.04 * attempt)
                service.terminate()
                process = service.process
            else:
                process = launch(default_checkpoint(), log, CERBERANK_PORT=str(taken.getsockname()[1]))
            codes.append(process.wait(60))
            logs.append(log.read_text())
    assert codes == [0 if ended_by == "a signal" else 1] * attempts, logs
    assert not all("ready: " in log for log in logs), "every model was loaded before the end"
    assert not any("Traceback" in log for log in logs)
    assert ended_by == "a signal" or all("address already in use" in log for log in logs)


def test_a_checkpoint_that_cannot_be_served_ends_the_program(tiny_copy: Path, tmp_path: Path) -> None:
    """Exit code 2, and one line with the reason and what to set instead of it, in place of a replica never ready."""
    (tiny_copy / "manifest.json").unlink()
    log = tmp_path / "log"
    assert launch(tiny_copy, log).wait(60) == 2
    assert "Traceback" not in log.read_text()
    (line,) = (line for line in log.read_text().splitlines() if line.startswith("cerberank serve: "))
    assert str(tiny_copy) in line
    assert line.startswith(f"cerberank serve: {tiny_copy} cannot be served: ")
    assert "has no manifest.json" in line
    assert all(name in line for name in ("CERBERANK_CHECKPOINT", "CERBERANK_STORE", "MODEL"))
