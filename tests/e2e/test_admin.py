"""`cerberank admin` against the real process, on the admin port of its own."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from cerberank.cli import main
from tests.service.observe import wait_until
from tools.process import START_SECONDS, Process, launch, start

TOKEN = "a-token-of-the-tests"


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, Path]:
    """A certificate for 127.0.0.1, its key, and the authority that signed it."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    paths = {name: tmp_path / f"{name}.pem" for name in ("chain", "key", "authority")}
    made.cert_chain_pems[0].write_to_path(paths["chain"])
    made.private_key_pem.write_to_path(paths["key"])
    authority.cert_pem.write_to_path(paths["authority"])
    return paths


@pytest.fixture
def service(tiny_checkpoint: Path, tmp_path: Path, certificate: dict[str, Path]) -> Iterator[Process]:
    """A process with TLS on both ports."""
    settings = {
        "CERBERANK_ADMIN_TOKEN": TOKEN,
        "CERBERANK_ADMIN_PORT": "0",
        "CERBERANK_TLS_CERTIFICATE": str(certificate["chain"]),
        "CERBERANK_TLS_KEY": str(certificate["key"]),
    }
    running = start(tiny_checkpoint, tmp_path / "log", **settings)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_an_operator_asks_over_tls(
    *,
    service: Process,
    certificate: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the authority of the certificate, or by the service's own variables alone; the token is in no log."""
    assert service.url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(certificate["authority"]))
    ready = f"{service.url}/health/ready"
    wait_until(lambda: httpx.get(ready, verify=trusting).status_code == 200, seconds=START_SECONDS)
    wait_until(lambda: service.admin_url)
    assert service.admin_url is not None
    monkeypatch.setenv("CERBERANK_ADMIN_URL", service.admin_url)
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate["authority"]))
    assert main(["admin", "drain"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "draining\n"
    assert httpx.get(ready, verify=trusting).status_code == 503
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", "another-token-of-the-tests")
    assert main(["admin", "models"]) == 1
    assert "needs the admin token" in capsys.readouterr().err
    monkeypatch.delenv("SSL_CERT_FILE")
    assert main(["admin", "models"]) == 1  # the authority is not trusted
    assert f"the admin port at {service.admin_url} did not answer" in capsys.readouterr().err
    monkeypatch.delenv("CERBERANK_ADMIN_URL")
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("CERBERANK_ADMIN_PORT", service.admin_url.rpartition(":")[2])
    monkeypatch.setenv("CERBERANK_TLS_CERTIFICATE", str(certificate["chain"]))
    assert main(["admin", "models"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.startswith("draining\n")
    service.terminate()
    assert service.process.wait(timeout=60) == 0
    assert TOKEN not in service.log.read_text()


def test_without_a_token_there_is_no_admin_port(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """An empty variable is none; and a taken port ends the program before it serves."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        quiet = start(tiny_checkpoint, tmp_path / "quiet", CERBERANK_ADMIN_TOKEN="", CERBERANK_ADMIN_PORT=port)
        try:
            assert quiet.admin_url is None
        finally:
            quiet.process.kill()
            quiet.process.wait()
        log = tmp_path / "refused"
        assert launch(tiny_checkpoint, log, CERBERANK_ADMIN_TOKEN=TOKEN, CERBERANK_ADMIN_PORT=port).wait(60) != 0
        assert "address already in use" in log.read_text()
