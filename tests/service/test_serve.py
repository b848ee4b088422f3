from __future__ import annotations

import json
import logging
import socket
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from tests.service.asking import held
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import service_of, wait_until

from cerberank_service.serve import Ending, Server, serve
from cerberank_service.settings import Settings

BODY = {"question": "q", "candidates": ["a", "b"]}


def test_a_wrong_setting_ends_the_program_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, naming the variable."""
    monkeypatch.setenv("CERBERANK_PORT", "http")
    assert serve() == 2
    assert "CERBERANK_PORT='http'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "served"),
    [
        ({"model": "checkpoint"}, {"checkpoint": Path("checkpoint")}),
        ({"model": "someone/tiny"}, {"model": "someone/tiny"}),
        ({"store": "elsewhere"}, {"store": "elsewhere"}),
    ],
)
def test_what_the_call_names_is_served_whatever_the_variables_name(
    options: dict[str, Any],
    served: dict[str, object],
    no_settings: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not the store or checkpoint of the environment."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "manifest.json").write_text("{}")
    monkeypatch.setenv("CERBERANK_STORE", "store")
    monkeypatch.setenv("CERBERANK_CHECKPOINT", "folder")
    seen: list[Settings] = []

    def assembled(settings: Settings, *_: object) -> None:
        seen.append(settings)
        raise OSError("this is far enough")

    monkeypatch.setattr("cerberank_service.serve.assemble", assembled)
    model = options.pop("model", None)
    assert serve(model, **options) == 1
    unset = {"model": "", "checkpoint": None, "store": ""}
    assert {name: getattr(seen[0], name) for name in unset} == unset | served


def test_no_place_for_copies_ends_the_program_before_it_serves(
    no_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and no traceback of the server that was about to start. Exit code 1: there may be a place later."""
    monkeypatch.setenv("CERBERANK_STORE", str(tmp_path))
    monkeypatch.setenv("CERBERANK_PORT", "0")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    assert serve() == 1
    err = capsys.readouterr().err
    assert err.startswith("cerberank serve: ")
    assert "No such file" in err
    assert err.count("\n") == 1


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize("names", [("KEYS_FILE",), ("TLS_CERTIFICATE", "TLS_KEY")])
@pytest.mark.parametrize("content", ["{", None])
def test_a_broken_file_ends_the_program_so_that_it_is_started_again(
    names: Sequence[str],
    content: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1 and one line: the file may be repaired, and systemd does not restart after exit code 2."""
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
    for name in names:
        monkeypatch.setenv(f"CERBERANK_{name}", str(file))
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    monkeypatch.setattr("cerberank_service.serve.configure_logs", lambda settings: None)
    assert serve() == 1
    err = capsys.readouterr().err
    assert str(file) in err
    assert err.count("\n") == 1


def test_a_start_that_fails_has_a_json_line_where_the_log_is_json(
    no_settings: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a setting is wrong, before the log could be configured."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setenv("CERBERANK_LOG_FORMAT", "json")
    monkeypatch.setenv("CERBERANK_PORT", "http")
    assert serve() == 2
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "CRITICAL"
    assert "CERBERANK_PORT='http'" in line["message"]
    assert line["time"].endswith("Z")


def test_a_taken_port_is_told_with_the_option_for_another() -> None:
    """Instead of a server that ends without a word; `run` raises what `ending` gets."""
    ending: Ending = SimpleQueue()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = uvicorn.Config(FastAPI(), port=taken.getsockname()[1], log_config=None)
        Server("server", config, ending, content="an app", port_setting="--port").start()
        error = ending.get(timeout=20)
    assert isinstance(error, OSError)
    assert str(error) == f"cannot listen on http://127.0.0.1:{config.port}; name another port with --port"


def test_a_shutdown_answers_what_came_before_and_refuses_the_rest(serve: Serve) -> None:
    """Requests in the engine and on their way to it are answered; the probe fails at once."""
    backend = FakeBackend()
    client = serve(backend)
    with ThreadPoolExecutor(4) as pool:
        with held(backend):
            accepted = [pool.submit(client.post, "/v1/rank", json=BODY) for _ in range(4)]
            assert backend.entered.wait(20)
            wait_until(lambda: sum(live.leases for live in service_of(client).versions.snapshot.live()) == 4)
            service_of(client).refuse()
            assert client.get("/health/ready").json() == {"ready": False, "state": "stopped"}
            refused = client.post("/v1/rank", json=BODY)
        assert {future.result(20).status_code for future in accepted} == {200}
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert refused.json()["error"]["kind"] == "unavailable"


def test_a_replica_that_leaves_is_not_ready_and_still_answers(serve: Serve) -> None:
    """Load balancers need seconds to notice; what they send meanwhile is answered."""
    client = serve(FakeBackend())
    service_of(client).leave()
    assert client.get("/health/ready").json() == {"ready": False, "state": "draining"}
    assert client.get("/health/live").status_code == 200
    assert client.post("/v1/rank", json=BODY).status_code == 200
