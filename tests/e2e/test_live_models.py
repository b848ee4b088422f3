"""Pushes into a store while clients ask the real process."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tools.process import Process, serving
from tools.versions import versions_of

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore

BODY = {"question": "how tall is the tower ?", "candidates": ["it was built in paris", "a mark", "1 metres"]}
MODEL = "random-tiny"


@pytest.fixture
def versions(tiny_checkpoint: Path, other_checkpoint: Path, tmp_path: Path) -> dict[str, Path]:
    """Two versions that score differently, and a third that is never served."""
    return {"1": tiny_checkpoint, "2": other_checkpoint} | versions_of(other_checkpoint, tmp_path, ["3"])


@pytest.fixture
def store(tmp_path: Path, versions: dict[str, Path]) -> FolderStore:
    """It holds version 1 as stable."""
    store = FolderStore(tmp_path / "store")
    store.push(read_checkpoint(versions["1"]))
    store.move_label(MODEL, "stable", "1")
    return store


@pytest.fixture
def following(store: FolderStore, tmp_path: Path) -> Iterator[Process]:
    """A process that follows the store, ready."""
    settings = {"CERBERANK_STORE": str(tmp_path / "store"), "CERBERANK_STORE_POLL_SECONDS": "0.1"}
    with serving(Path(), tmp_path / "log", TMPDIR=str(tmp_path), **settings) as running:
        yield running


def until(condition: Callable[[], object], service: Process) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, service.log.read_text()
        time.sleep(0.02)


Models = Callable[[], dict[str, dict[str, Any]]]


@pytest.fixture
def models(following: Process) -> Iterator[Models]:
    """Gives the models that are listed now, by version."""
    with httpx.Client(base_url=following.url) as client:
        yield lambda: {each["version"]: each for each in client.get("/v1/models").json()["models"] if "version" in each}


class Client:
    """Asks again a hundredth of a second after each answer until it is told to stop.

    Without that pause the service's loading waits for a processor: the test took 37 seconds on one, not 3.
    """

    def __init__(self, url: str) -> None:
        self.url, self.done = url, threading.Event()
        self.answers: list[tuple[int, str, tuple[float, ...]]] = []

    def run(self) -> None:
        with httpx.Client(timeout=30) as client:
            while not self.done.wait(0.01):
                answer = client.post(f"{self.url}/v1/rank", json=BODY)
                content = answer.json()
                scores = tuple(result["score"] for result in content.get("results", ()))
                self.answers.append((answer.status_code, content.get("version", ""), scores))


def test_pushes_good_and_bad_and_a_rollback_fail_no_request(
    following: Process, models: Models, store: FolderStore, versions: dict[str, Path], tmp_path: Path
) -> None:
    """Every question is answered by a version that was ready, and each version always says the same of it."""
    client = Client(following.url)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(client.run)
        try:
            store.push(read_checkpoint(versions["2"]))
            store.move_label(MODEL, "stable", "2")
            until(lambda: models().get("2", {}).get("labels") == ["stable"], following)
            damage(shutil.copytree(versions["3"], tmp_path / "store" / MODEL / "3"))
            store.move_label(MODEL, "stable", "3")
            until(lambda: models().get("3", {}).get("state") == "failed", following)
            assert models()["3"]["reason"].startswith("changed: ")
            assert models()["2"]["labels"] == ["stable"]
            store.move_label(MODEL, "stable", "1")
            until(lambda: models()["1"]["labels"] == ["stable"], following)
            seen = len(client.answers)
            until(lambda: len(client.answers) > seen + 5, following)
        finally:
            client.done.set()
        running.result()
    assert {status for status, _, _ in client.answers} == {200}
    order = [version for _, version, _ in client.answers]
    changes = [version for place, version in enumerate(order) if place == 0 or order[place - 1] != version]
    assert changes == ["1", "2", "1"]
    for version in ("1", "2"):
        assert len({scores for _, answered, scores in client.answers if answered == version}) == 1
    assert len({scores for _, _, scores in client.answers}) == 2
    assert 'version="3"' not in httpx.get(f"{following.url}/metrics").text
    assert "is rejected (changed)" in following.log.read_text()


def damage(version: Path) -> None:
    graph = version / "onnx" / "int8" / "stage-0.onnx"
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
