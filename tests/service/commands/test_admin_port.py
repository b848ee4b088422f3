"""`cerberank store label`, and `cerberank admin label` with an admin port that stands here for a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cerberank.cli import main
from tests.http_server import Asked, answering

Capture = pytest.CaptureFixture[str]
TOKEN = "a-token-of-the-tests"
MODEL = "fake-ranker"


@dataclass
class Port:
    """The requests to an admin port, and its answers."""

    url: str = ""
    status: int = 200
    answer: Any = field(default_factory=dict)
    """Sent as JSON; bytes as they are."""
    asked: list[tuple[str, str, str | None, Any]] = field(default_factory=list)

    def respond(self, asked: Asked) -> tuple[int, object, dict[str, str]]:
        """The same answer to every request, which is noted."""
        body = json.loads(asked.body) if asked.body else None
        self.asked.append((asked.method, asked.path, asked.headers.get("authorization"), body))
        return self.status, self.answer, {}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[Port]:
    """An admin port that knows nothing of labels; no other token is in the environment."""
    monkeypatch.delenv("CERBERANK_ADMIN_TOKEN", raising=False)
    port = Port()
    with answering(port.respond) as port.url:
        yield port


def test_an_admin_port_is_asked_instead_of_a_store(
    port: Port, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the options stand."""
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    port.answer = {"model": MODEL, "label": "stable", "before": "1", "version": "2"}
    assert main(["admin", "label", MODEL, "stable", "--url", port.url, "2"]) == 0
    assert main(["admin", "label", "--url", port.url, MODEL, "stable", "2", "--only-from", "1"]) == 0
    assert main(["admin", "label", "--url", port.url, MODEL, "canary", "--remove"]) == 0
    path = f"/v1/models/{MODEL}/labels"
    assert port.asked == [
        ("PUT", f"{path}/stable", f"Bearer {TOKEN}", {"version": "2", "only_from": None}),
        ("PUT", f"{path}/stable", f"Bearer {TOKEN}", {"version": "2", "only_from": "1"}),
        ("DELETE", f"{path}/canary", f"Bearer {TOKEN}", None),
    ]
    assert capsys.readouterr().out.splitlines()[0] == f"{MODEL}@stable: 1 -> 2"


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("load m@2", ("POST", "/models/m/versions/2/load", None)),
        ("unload m@2", ("POST", "/models/m/versions/2/unload", None)),
        ("rollback m", ("POST", "/models/m/rollback", None)),
        ("schedule m@2 0.5", ("PUT", "/models/m/versions/2/drop-schedule", {"drop_schedule": 0.5, "lexical_ratio": 0})),
        (
            "schedule m@canary 0.5,0.25 --lexical-ratio 0.1",
            ("PUT", "/models/m/versions/canary/drop-schedule", {"drop_schedule": [0.5, 0.25], "lexical_ratio": 0.1}),
        ),
        (
            "schedule m@2 --reset",
            ("PUT", "/models/m/versions/2/drop-schedule", {"drop_schedule": None, "lexical_ratio": 0}),
        ),
        ("drain", ("POST", "/drain", None)),
        ("resume", ("POST", "/resume", None)),
    ],
)
def test_each_verb_is_a_request(
    words: str, asked: tuple[str, str, Any], port: Port, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """To the address that the environment names; with --json the answer is printed as it is."""
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("CERBERANK_ADMIN_URL", port.url)
    port.answer = {"state": "ready", "models": [{"model": "m", "version": "2", "state": "ready", "pinned": True}]}
    assert main(["admin", *words.split()]) == 0
    assert capsys.readouterr().out == "ready\nm@2  ready  pinned\n"
    assert main(["admin", *words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == port.answer
    method, path, body = asked
    assert port.asked == [(method, f"/v1{path}", f"Bearer {TOKEN}", body)] * 2


def test_a_load_is_waited_for(port: Port, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the version is ready, is rejected, or the time is over."""
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    for state, wait, message in (
        ("ready", "60", ""),
        ("failed", "60", "m@2: too big"),
        ("loading", "0.01", "not ready"),
    ):
        port.answer = {
            "state": "ready",
            "models": [{"model": "m", "version": "2", "state": state, "reason": "too big"}],
        }
        assert main(["admin", "load", "m@2", "--wait", wait, "--url", port.url]) == bool(message)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (200, {"models": [{"model": "m", "version": "1"}]}, "is not an admin port"),
        (200, b"<html>", "is not an admin port"),
        (200, b"[" * 100_000, "is not an admin port"),
        (404, {"error": "not found"}, "answered with status 404"),
        (500, ["x"], "answered with status 500"),
    ],
)
def test_another_service_is_told_in_one_line(
    status: int, answer: Any, message: str, *, port: Port, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The public port, whose list of models has no state, and a service of somebody else."""
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    port.status, port.answer = status, answer
    assert main(["admin", "models", "--url", port.url]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"cerberank admin models: {port.url} {message}")
    assert error.count("\n") == 1


def test_the_versions_are_listed_without_the_store(
    port: Port, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the label that names a version that does not serve it, and the reason why the store is not listed."""
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    known = {"model": MODEL, "labels": ["stable"], "wanted": []}
    rejected = {"model": MODEL, "labels": [], "wanted": ["stable"], "reason": "bad"}
    port.answer = {
        "state": "ready",
        "models": [
            known | {"version": "1", "state": "ready"},
            rejected | {"version": "2", "state": "failed"},
            known | {"version": "3", "state": "ready", "wanted": ["stable"]},
        ],
        "store": None,
        "store_error": "the store cannot be read: gone",
    }
    assert main(["admin", "models", "--url", port.url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ready",
        f"{MODEL}@1  ready  stable",
        f"{MODEL}@2  failed  wanted as stable  bad",
        f"{MODEL}@3  ready  stable",
        "the store cannot be read: gone",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["STORE", MODEL, "stable", "7"], "has no version 7"),
        (["STORE", MODEL, "stable", ".."], "'..' is not a version"),
        (["STORE", "..", "stable", "1"], "'..' is not a model name"),
        (["--url", "URL", MODEL, "stable", "2"], "it has only version 1"),
        (["--url", "bucket/models", MODEL, "stable", "2"], "is not the URL of a service"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    *,
    arguments: list[str],
    message: str,
    port: Port,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 1, the verb and the reason, no traceback; the service's refusal in its own words."""
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    port.status, port.answer = 404, {"error": {"message": "it has only version 1"}}
    meant = {"STORE": str(tmp_path / "store"), "URL": port.url}
    command = ["store" if "STORE" in arguments else "admin", "label"]
    assert main([*command, *(meant.get(part, part) for part in arguments)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"cerberank {command[0]} label: ")
    assert message in error
    assert error.count("\n") == 1


def test_without_a_token_nothing_is_asked(port: Port, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the variable."""
    assert main(["admin", "label", "--url", port.url, MODEL, "stable", "2"]) == 1
    assert "no token: set CERBERANK_ADMIN_TOKEN" in capsys.readouterr().err
    assert not port.asked


@pytest.mark.parametrize(
    "arguments",
    [
        ["store", "label", MODEL, "stable", "2"],
        ["store", "label", "store", MODEL, "stable"],
        ["store", "label", "store", MODEL, "stable", "2", "--remove"],
        ["store", "label", "store", MODEL, "stable", "--remove", "--only-from", "1"],
        ["store", "label", "store", "--url", "http://127.0.0.1:8001", MODEL, "stable", "2"],
        ["admin", "label", "store", MODEL, "stable", "2", "--url", "http://127.0.0.1:8001"],
    ],
)
def test_a_call_that_means_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one line: neither a store and a port together, nor half a move."""
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"cerberank {arguments[0]} label: ")
    assert shown.count("\n") == 1
