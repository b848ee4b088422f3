"""Pushes into a store while clients ask the real process."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tools.process import Process, serving, until
from tools.versions import damage, versions_of

from cerberank_benchmarks.clients.load import Load, request_of
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore

BODY = {"question": "how tall is the tower ?", "candidates": [f"{number} metres in paris" for number in range(20)]}
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


Models = Callable[[], dict[str, dict[str, Any]]]


@pytest.fixture
def models(following: Process) -> Iterator[Models]:
    """Gives the models that are listed now, by version."""
    with httpx.Client(base_url=following.url) as client:
        yield lambda: {each["version"]: each for each in client.get("/v1/models").json()["models"] if "version" in each}


def test_pushes_good_and_bad_and_a_rollback_fail_no_request(
    following: Process, models: Models, store: FolderStore, versions: dict[str, Path], tmp_path: Path
) -> None:
    """Every question is answered by a version that was ready, and each version has an order of its own."""
    load = Load(following.url)
    # Without a pause the service's loading waits for a processor: the test took 37 seconds on one, not 3.
    with load.meanwhile(load.in_loops([itertools.repeat(request_of(BODY))], pause=0.01)):
        store.push(read_checkpoint(versions["2"]))
        store.move_label(MODEL, "stable", "2")
        until(lambda: models().get("2", {}).get("labels") == ["stable"])
        damage("changed", Path(shutil.copytree(versions["3"], tmp_path / "store" / MODEL / "3")))
        store.move_label(MODEL, "stable", "3")
        until(lambda: models().get("3", {}).get("state") == "failed")
        assert models()["3"]["reason"].startswith("changed: ")
        assert models()["2"]["labels"] == ["stable"]
        store.move_label(MODEL, "stable", "1")
        until(lambda: models()["1"]["labels"] == ["stable"])
        answers = len(load.answers)
        until(lambda: len(load.answers) > answers + 5)
    assert {answer.status for answer in load.answers} == {200}
    assert [version for version, _ in itertools.groupby(answer.version for answer in load.answers)] == ["1", "2", "1"]
    orders = {(answer.version, answer.order) for answer in load.answers}
    assert {version for version, _ in orders} == {"1", "2"}
    assert len(orders) == len({order for _, order in orders}) == 2
    assert 'version="3"' not in httpx.get(f"{following.url}/metrics").text
    assert "is rejected (changed)" in following.log.read_text()
