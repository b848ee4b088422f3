"""From start to SIGTERM: readiness, refusal of a bad checkpoint, and no accepted request lost."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from tests.e2e.conftest import Process, start

MANY = [f"{number} metres word " + "word " * (number % 30) for number in range(3000)]


def test_sigterm_answers_what_was_accepted(service: Process) -> None:
    """Requests in flight get their answer, later ones are refused, the process ends by itself with code 0."""
    body = {"question": "how tall ?", "candidates": MANY}
    with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=service.url) as probe:
        answers = [pool.submit(httpx.post, f"{service.url}/v1/rank", json=body, timeout=120) for _ in range(4)]
        end = time.monotonic() + 60
        while _queued(probe) == 0:
            assert time.monotonic() < end, "nothing was queued"
            time.sleep(0.005)
        accepted = _queued(probe)
        service.terminate()
        statuses = []
        for answer in answers:
            try:
                result = answer.result()
            except httpx.TransportError:
                statuses.append(0)  # its connection had not been taken yet: refused, not lost
                continue
            statuses.append(result.status_code)
            assert result.status_code != 200 or len(result.json()["results"]) == len(MANY)
    assert accepted > 0
    assert statuses.count(200) >= 1
    assert set(statuses) <= {200, 503, 0}
    assert service.process.wait(timeout=60) == 0


def _queued(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("cerberank_queued_tokens ")))


def test_a_bad_checkpoint_is_never_ready(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The process lives and says why: one changed byte of a graph."""
    copy = Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))
    graph = copy / "onnx" / "int8" / "stage-1.onnx"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    service = start(copy, tmp_path / "log")
    try:
        with httpx.Client(base_url=service.url) as client:
            end = time.monotonic() + 30
            while client.get("/v1/models").json()["models"][0]["state"] == "loading":
                assert time.monotonic() < end
                time.sleep(0.05)
            (model,) = client.get("/v1/models").json()["models"]
            assert model["state"] == "failed"
            assert "stage-1.onnx does not have the SHA-256" in model["reason"]
            assert client.get("/health/live").status_code == 200
            assert client.get("/health/ready").status_code == 503
            refused = client.post("/v1/rank", json={"question": "a", "candidates": ["b"]})
            assert refused.status_code == 503
            assert int(refused.headers["Retry-After"]) >= 1
    finally:
        service.process.kill()
        service.process.wait()


def test_a_wrong_setting_stops_the_program(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Exit code 2 and the variable's name, before anything listens."""
    try:
        start(tiny_checkpoint, tmp_path / "log", CERBERANK_STEP_TOKENS="many")
    except AssertionError:
        assert "CERBERANK_STEP_TOKENS='many'" in (tmp_path / "log").read_text()
    else:
        raise AssertionError("the service started with a wrong setting")
