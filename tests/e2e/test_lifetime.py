"""From start to SIGTERM: readiness, refusal of a bad checkpoint, and no accepted request lost."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.e2e.load import statuses_of_a_stop
from tests.service.observe import wait_until
from tools.process import Process, launch, serving, start
from tools.versions import edit

from cerberank_benchmarks.clients.load import NO_ANSWER
from cerberank_models.checkpoint.bundled import default_checkpoint

MANY = [f"{number} metres word " + "word " * (number % 30) for number in range(3000)]
BODY = {"question": "how tall ?", "candidates": MANY}


def test_sigterm_answers_what_was_accepted(service: Process) -> None:
    """Requests in flight get their answer, later ones are refused, the process ends by itself with code 0."""
    statuses = statuses_of_a_stop(service, BODY, clients=4)
    assert statuses.count(200) >= 1
    assert set(statuses) <= {200, 503, NO_ANSWER}


def test_a_leaving_replica_answers_until_the_load_balancer_has_noticed(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """For the lame-duck time the probe fails and questions are answered; a second signal ends it early."""
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_LAME_DUCK_SECONDS="600") as service:
        service.terminate()
        end = time.monotonic() + 60
        while httpx.get(f"{service.url}/health/ready").status_code == 200:
            assert time.monotonic() < end, "still ready after SIGTERM"
            time.sleep(0.01)
        assert httpx.get(f"{service.url}/health/live").status_code == 200
        answer = httpx.post(f"{service.url}/v1/rank", json={"question": "how tall ?", "candidates": ["330 metres"]})
        assert answer.status_code == 200
        service.terminate()
        assert service.process.wait(timeout=60) == 0


def test_what_is_not_done_after_the_drain_time_is_answered_with_503(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Nothing that was accepted is left without an answer."""
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_DRAIN_SECONDS="0") as service:
        statuses = set(statuses_of_a_stop(service, BODY, clients=8))
    assert 503 in statuses
    assert statuses <= {200, 503, NO_ANSWER}


def test_an_occupied_port_ends_the_program(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Exit code 1 and the address, without a traceback."""
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert launch(tiny_checkpoint, log, CERBERANK_PORT=port).wait(60) == 1
    assert "address already in use" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_every_answer_from_sigterm_on_ends_its_connection(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """To a request that began before it, a refused one and a probe: no client sends into a connection that closes."""
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
        service.terminate()
        wait_until(lambda: httpx.get(f"{service.url}/health/ready").status_code == 503)
        asking.request("POST", "/v1/rank", "{}")
        probing.request("GET", "/health/live")
        waiting.send(body[1000:])
        for client, status in ((asking, 422), (probing, 200), (waiting, 200)):
            assert client.sock is not None
            raw = client.sock.dup()
            answer = client.getresponse()
            answer.read()
            assert (answer.status, answer.getheader("Connection")) == (status, "close")
            with raw:
                assert raw.recv(1) == b"", "the connection stays open"
            client.close()


@pytest.mark.parametrize("ended_by", ["a signal", "an occupied port"])
def test_an_end_while_the_model_loads_has_an_exit_code(tmp_path: Path, ended_by: str) -> None:
    """Several times, because the loader must be in a library's native code when the interpreter ends."""
    codes, logs = [], []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for attempt in range(4):
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
    assert codes == [0 if ended_by == "a signal" else 1] * 4, logs
    assert not all("ready: " in log for log in logs), "every model was loaded before the end"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("missing", "has no manifest.json"),
        ("changed", "stage-1.onnx does not have the SHA-256"),
        ("invalid", "config.json: surprise"),
    ],
)
def test_a_checkpoint_that_cannot_be_served_ends_the_program(
    tiny_checkpoint: Path, tmp_path: Path, kind: str, reason: str
) -> None:
    """Exit code 2, and one line with the reason and what to set instead of it, in place of a replica never ready."""
    copy = Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))
    if kind == "missing":
        (copy / "manifest.json").unlink()
    elif kind == "changed":
        graph = copy / "onnx" / "int8" / "stage-1.onnx"
        content = bytearray(graph.read_bytes())
        content[len(content) // 2] ^= 1
        graph.write_bytes(content)
    else:
        config = json.dumps(json.loads((copy / "config.json").read_text()) | {"surprise": 1}).encode()
        (copy / "config.json").write_bytes(config)
        files = json.loads((copy / "manifest.json").read_text())["files"]
        edit(copy, files=files | {"config.json": hashlib.sha256(config).hexdigest()})
    log = tmp_path / "log"
    assert launch(copy, log).wait(60) == 2
    assert "Traceback" not in log.read_text()
    (line,) = (line for line in log.read_text().splitlines() if str(copy) in line)
    assert line.startswith(f"cerberank serve: {copy} cannot be served: ")
    assert reason in line
    assert all(name in line for name in ("CERBERANK_CHECKPOINT", "CERBERANK_STORE", "MODEL"))


def test_a_missing_library_ends_the_program(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The last line has the command that installs it."""
    log = tmp_path / "log"
    code = "import sys; sys.modules['onnxruntime'] = None; from cerberank.cli import main; sys.exit(main())"
    assert launch(tiny_checkpoint, log, program=("-c", code, "serve")).wait(60) == 1
    assert "Traceback" not in log.read_text()
    last = log.read_text().splitlines()[-1]
    assert last.startswith("cerberank serve: 'onnxruntime' is not installed; run: pip install 'cerberank[")


def test_a_wrong_setting_stops_the_program(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Exit code 2 and the variable's name, before anything listens."""
    try:
        start(tiny_checkpoint, tmp_path / "log", CERBERANK_STEP_TOKENS="many")
    except AssertionError:
        assert "CERBERANK_STEP_TOKENS='many'" in (tmp_path / "log").read_text()
    else:
        raise AssertionError("the service started with a wrong setting")
