"""A replica that stops, beside a store: rules are on, and the real process gets a SIGTERM."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from tests.e2e.conftest import start, wait_until_ready

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore

MODEL = "random-tiny"


def test_a_stop_moves_no_label(tiny_checkpoint: Path, other_checkpoint: Path, tmp_path: Path) -> None:
    """Its engines end before its connections do; the rules take neither for a failure of the stable version."""
    store = FolderStore(tmp_path / "store")
    store.push(read_checkpoint(tiny_checkpoint))
    store.move_label(MODEL, "stable", "1")
    settings = {
        "CERBERANK_STORE": str(tmp_path / "store"),
        "CERBERANK_STORE_POLL_SECONDS": "0.05",
        "CERBERANK_ROLLBACK_FAILURE_PERCENT": "10",
        "CERBERANK_DRAIN_SECONDS": "0",
    }
    service = start(Path(), tmp_path / "log", TMPDIR=str(tmp_path), **settings)
    try:
        wait_until_ready(service)
        store.push(read_checkpoint(other_checkpoint))
        store.move_label(MODEL, "stable", "2")
        end, body = time.monotonic() + 60, {"question": "q", "candidates": ["a"]}
        while httpx.post(f"{service.url}/v1/rank", json=body).json()["version"] != "2":
            assert time.monotonic() < end, service.log.read_text()
            time.sleep(0.05)
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            # A body that does not come keeps the process from ending at once.
            client.sendall(b"POST /v1/rank HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            time.sleep(0.2)
            service.process.send_signal(signal.SIGTERM)
            service.process.wait(60)
    finally:
        service.process.kill()
        service.process.wait()
    assert store.labels(MODEL) == {"stable": "2"}
    assert "rolled back" not in service.log.read_text()
