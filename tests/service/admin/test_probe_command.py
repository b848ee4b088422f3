"""`cerberank server probe` against a real process, with TLS and without."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cerberank.cli import main
from tests.service.observe import wait_until
from tools.process import Process, start

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The variables of the service; its certificate is for another name than 127.0.0.1, and its authority unknown."""
    if not request.param:
        return {}
    made = trustme.CA().issue_cert("rank.example.org")
    made.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    return {"CERBERANK_TLS_CERTIFICATE": f"{tmp_path}/chain.pem", "CERBERANK_TLS_KEY": f"{tmp_path}/key.pem"}


@pytest.fixture
def service(
    tiny_checkpoint: Path, tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Process]:
    """A process whose port and TLS settings are this process's variables too."""
    running = start(tiny_checkpoint, tmp_path / "log", **settings)
    monkeypatch.setenv("CERBERANK_PORT", running.url.rpartition(":")[2])
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_a_probe_follows_port_and_tls_and_tells_the_state(service: Process, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 once it is ready, 1 and the address when nobody answers."""
    wait_until(lambda: main(["server", "probe"]) == 0, seconds=60)
    assert main(["server", "probe", "live"]) == 0
    assert f"{service.url}/health/live: 200" in capsys.readouterr().out
    service.process.kill()
    service.process.wait()
    assert main(["server", "probe", "live"]) == 1
    assert capsys.readouterr().err.startswith(f"cerberank server probe: {service.url}/health/live: ")


def test_a_service_that_loads_lives_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 with the answer's own words."""
    running = start(tmp_path / "unused", tmp_path / "log", CERBERANK_STORE=str(tmp_path / "no-store"))
    try:
        monkeypatch.setenv("CERBERANK_PORT", running.url.rpartition(":")[2])
        assert main(["server", "probe", "live"]) == 0
        wait_until(
            lambda: main(["server", "probe", "ready"]) == 1 and "the store does not exist" in capsys.readouterr().err
        )
    finally:
        running.process.kill()
        running.process.wait()


def test_one_who_accepts_and_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the time-out, with exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("CERBERANK_PORT", str(silent.getsockname()[1]))
        assert main(["server", "probe", "--timeout", "0.1"]) == 1
    assert "timed out" in capsys.readouterr().err


def test_a_port_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line."""
    monkeypatch.setenv("CERBERANK_PORT", "0")
    assert main(["server", "probe"]) == 1
    assert capsys.readouterr().err == "cerberank server probe: CERBERANK_PORT=0 is no port that can be asked\n"
