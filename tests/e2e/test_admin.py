"""`cerberank admin` against the real process, on the admin port of its own."""

from __future__ import annotations

import json
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
from tools.versions import versions_of

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore

MODEL, TOKEN = "random-tiny", "a-token-of-the-tests"
BODY = {"question": "how tall is it?", "candidates": ["330 metres", "in paris"]}


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
    """A process with TLS on both ports that follows a store with versions 1, which is stable, and 2."""
    store = FolderStore(tmp_path / "store")
    for path in versions_of(tiny_checkpoint, tmp_path, ["1", "2"]).values():
        store.push(read_checkpoint(path))
    store.move_label(MODEL, "stable", "1")
    settings = {
        "CERBERANK_STORE": str(tmp_path / "store"),
        "TMPDIR": str(tmp_path),
        "CERBERANK_STORE_POLL_SECONDS": "60",  # verbs take effect at once, not with the next look
        "CERBERANK_ADMIN_TOKEN": TOKEN,
        "CERBERANK_ADMIN_PORT": "0",
        "CERBERANK_TLS_CERTIFICATE": str(certificate["chain"]),
        "CERBERANK_TLS_KEY": str(certificate["key"]),
    }
    running = start(Path(), tmp_path / "log", **settings)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture
def client(service: Process, certificate: dict[str, Path]) -> Iterator[httpx.Client]:
    """A client that trusts the authority, once version 1 is served."""
    trusting = ssl.create_default_context(cafile=str(certificate["authority"]))
    with httpx.Client(base_url=service.url, verify=trusting) as client:
        wait_for(client, "1")
        yield client


def wait_for(client: httpx.Client, version: str) -> None:
    wait_until(lambda: client.post("/v1/rank", json=BODY).json().get("version") == version, seconds=START_SECONDS)


def test_an_operator_loads_labels_rolls_back_and_drains(
    *,
    service: Process,
    client: httpx.Client,
    certificate: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every verb of the program, over TLS."""
    assert service.url.startswith("https://")
    assert service.admin_url is not None
    monkeypatch.setenv("CERBERANK_ADMIN_URL", service.admin_url)
    monkeypatch.setenv("CERBERANK_ADMIN_TOKEN", TOKEN)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate["authority"]))

    def admin(*verb: str) -> str:
        assert main(["admin", *verb]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert admin("models") == f"ready\n{MODEL}@1  ready  stable  drops [0.0, 0.0]\nin the store: {MODEL} 1, 2\n"
    loaded = admin("load", f"{MODEL}@2", "--wait", "60")
    assert f"{MODEL}@2  ready  pinned" in loaded
    assert main(["admin", "label", MODEL, "stable", "2"]) == 0
    assert capsys.readouterr().out == f"{MODEL}@stable: 1 -> 2\n"
    wait_for(client, "2")
    assert admin("rollback", MODEL) == f"{MODEL}@stable: 2 -> 1\n"
    wait_for(client, "1")
    listed = json.loads(admin("models", "--json"))
    assert [(e["version"], e["labels"], e["rollback"]) for e in listed["models"]] == [
        ("1", ["stable"], False),
        ("2", [], False),
    ]
    admin("schedule", f"{MODEL}@1", "0.5,0.25")
    assert "drops [0.5" in admin("models")
    admin("schedule", f"{MODEL}@stable", "--reset")
    admin("unload", f"{MODEL}@2")
    assert admin("drain") == "draining\n"
    assert client.get("/health/ready").status_code == 503
    assert admin("resume") == "ready\n"
    assert main(["admin", "unload", f"{MODEL}@1"]) == 1
    assert "serves stable" in capsys.readouterr().err
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
    assert main(["admin", "models"]) == 0, capsys.readouterr().err  # by the service's own variables alone
    assert capsys.readouterr().out.startswith("ready\n")
    monkeypatch.setenv("CERBERANK_ADMIN_PORT", "1")
    assert main(["admin", "models"]) == 1
    assert "the admin port at https://127.0.0.1:1 did not answer" in capsys.readouterr().err
    client.close()  # the end of an open TLS connection waits up to 30 s for the client's
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
