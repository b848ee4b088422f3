"""`cerberank store push --wait` against a server that says what a service says in `/v1/models`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cerberank.cli import main
from tests.http_server import Asked, answering
from tools.versions import versions_of

from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.commands import store as command

MODEL = "random-tiny"


@dataclass
class FakeService:
    """Answers with the first of `entries`, then with the next; the last one stays."""

    url: str = ""
    entries: list[dict[str, Any]] = field(default_factory=list)
    before_answer: Callable[[], object] = lambda: None

    def respond(self, asked: Asked) -> tuple[int, object, dict[str, str]]:
        """The list of models, with one that is ready before the entry."""
        self.before_answer()
        entry = self.entries.pop(0) if len(self.entries) > 1 else self.entries[0]
        content = {"models": [{"model": MODEL, "version": "0", "state": "ready", "labels": []}, entry]}
        return (200 if asked.path == "/v1/models" else 404), content, {}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    monkeypatch.setattr(command, "POLL_SECONDS", 0.01)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # which a service on this machine does not need
    service = FakeService()
    with answering(service.respond) as service.url:
        yield service


@pytest.fixture
def push(tiny_checkpoint: Path, tmp_path: Path) -> list[str]:
    return ["store", "push", str(tiny_checkpoint), str(tmp_path / "store"), "--label", "stable"]


def entry(state: str, *labels: str, reason: str | None = None) -> dict[str, Any]:
    return {"model": MODEL, "version": "1", "state": state, "labels": labels, "reason": reason}


READY = entry("ready", "stable")
GOLDEN, TOO_BIG = entry("failed", reason="golden: other scores"), entry("refused", reason="too_big: no memory")


@pytest.mark.parametrize(("last", "message"), [(READY, None), (GOLDEN, "golden: other scores"), (TOO_BIG, "too_big")])
def test_a_push_waits_for_the_verdict(
    service: FakeService, push: list[str], capsys: pytest.CaptureFixture[str], last: dict[str, Any], message: str | None
) -> None:
    """Through loading, ready without the label, and copies that are tried again; the exit code is the verdict."""
    service.entries = [{}, entry("loading"), entry("retrying", reason="disk: full"), entry("ready"), last]
    assert main([*push, "--wait", "60", "--url", service.url]) == (1 if message else 0)
    output, store = capsys.readouterr(), FolderStore(Path(push[3]))
    assert store.labels(MODEL) == ({} if message else {"stable": "1"})
    assert store.record(MODEL).served == (() if message else ("1",))
    if message:
        assert f"rejected by {service.url}: {message}" in output.err
        assert f"; moved back: {MODEL}@stable: 1 -> nothing\n" in output.err
    else:
        assert "serves it as stable" in output.out


def test_the_label_of_a_rejected_push_goes_back_unless_it_has_moved_on(
    service: FakeService, push: list[str], tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Clients and new replicas keep the version before; another one's move meanwhile is never overwritten."""
    store = FolderStore(Path(push[3]))
    made = versions_of(tiny_checkpoint, tmp_path, ["1", "2", "3"])
    for version in ("2", "3"):
        assert main(["store", "push", str(made[version]), push[3]]) == 0
    store.move_label(MODEL, "stable", "2")
    service.entries = [GOLDEN]
    push = [*push, "--wait", "60", "--url", service.url]
    assert main(push) == 1
    assert store.labels(MODEL) == {"stable": "2"}
    assert f"golden: other scores; moved back: {MODEL}@stable: 1 -> 2\n" in capsys.readouterr().err
    service.before_answer = lambda: store.move_label(MODEL, "stable", "3")
    assert main(push) == 1
    assert store.labels(MODEL) == {"stable": "3"}
    assert "could not be moved back: stable stands for 3 and not for 1 any more\n" in capsys.readouterr().err
    service.before_answer = lambda: None
    store.move_label(MODEL, "stable", "1")
    assert main(push) == 1
    assert store.labels(MODEL) == {"stable": "1"}
    assert "the label stable named it already, and still does\n" in capsys.readouterr().err


def test_no_verdict_is_no_success(service: FakeService, push: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A service that is not done in time, or does not answer; and a push that does not ask says so."""
    service.entries = [entry("loading")]
    assert main([*push, "--wait", "0.1", "--url", service.url]) == 1
    assert "no verdict on random-tiny@1 in time: it is loading" in capsys.readouterr().err
    assert main([*push, "--wait", "0", "--url", "http://127.0.0.1:1"]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert main([*push, "--wait", "0", "--url", service.url, "--url", "file:///etc"]) == 1
    assert "'file:///etc' is not the URL of a service" in capsys.readouterr().err
    assert main(push) == 0
    assert "no service has confirmed yet" in capsys.readouterr().out
    assert main([*push, "--wait", "1"]) == 2
