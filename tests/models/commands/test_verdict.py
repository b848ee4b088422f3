"""`cerberank push --wait` against a server that says what a service says in `/v1/models`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cerberank_models.checkpoint.store.folder import FolderStore
from cerberank_models.cli import main
from cerberank_models.commands import verdict

MODEL = "random-tiny"


class Told(ThreadingHTTPServer):
    """Answers with the first of `entries`, then with the next; the last one stays."""

    entries: list[dict[str, Any]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        told = self.server.entries  # type: ignore[attr-defined]
        entry = told.pop(0) if len(told) > 1 else told[0]
        content = json.dumps({"models": [{"model": MODEL, "version": "0", "state": "ready", "labels": []}, entry]})
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setattr(verdict, "POLL_SECONDS", 0.01)
    with Told(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def push(tiny_checkpoint: Path, tmp_path: Path) -> list[str]:
    return ["push", str(tiny_checkpoint), str(tmp_path / "store"), "--label", "stable"]


def entry(state: str, *labels: str, reason: str | None = None) -> dict[str, Any]:
    return {"model": MODEL, "version": "1", "state": state, "labels": labels, "reason": reason}


READY = entry("ready", "stable")
GOLDEN, TOO_BIG = entry("failed", reason="golden: other scores"), entry("refused", reason="too_big: no memory")


@pytest.mark.parametrize(("last", "said"), [(READY, None), (GOLDEN, "golden: other scores"), (TOO_BIG, "too_big")])
def test_a_push_waits_for_the_verdict(
    service: Told, push: list[str], capsys: pytest.CaptureFixture[str], last: dict[str, Any], said: str | None
) -> None:
    """Through loading, ready without the label, and copies that are tried again; the exit code is the verdict."""
    service.entries = [{}, entry("loading"), entry("retrying", reason="disk: full"), entry("ready"), last]
    assert main([*push, "--wait", "60", "--url", service.url]) == (1 if said else 0)
    output, store = capsys.readouterr(), FolderStore(Path(push[2]))
    assert store.labels(MODEL) == {"stable": "1"}
    assert store.record(MODEL).served == (() if said else ("1",))
    if said:
        assert f"rejected by {service.url}: {said}" in output.err
    else:
        assert "serves it as stable" in output.out


def test_no_verdict_is_no_success(service: Told, push: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A service that is not done in time, or does not answer; and a push that does not ask says so."""
    service.entries = [entry("loading")]
    assert main([*push, "--wait", "0.1", "--url", service.url]) == 1
    assert "no verdict on random-tiny@1 in time: it is loading" in capsys.readouterr().err
    assert main([*push, "--wait", "0", "--url", "http://127.0.0.1:1"]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert main([*push, "--wait", "0", "--url", "file:///etc"]) == 1
    assert main(push) == 0
    assert "no service was asked" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*push, "--wait", "1"])
