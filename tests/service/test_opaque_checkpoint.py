"""Imported opaque networks through HTTP: their one stage is served like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.opaque import save_shipped
from tests.service.conftest import Serve
from tests.service.following import Follow, entry
from tests.service.observe import samples, service_of, wait_until

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.commands.import_model import import_model
from cerberank_models.commands.import_options import ImportOptions
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs
from cerberank_models.windows import AS_SERVED
from cerberank_service.versions.loading import load
from cerberank_service.versions.state import State

QUESTION, TEXTS = "how tall is the tower ?", ["330 metres", "the tower " * 40, "what do bees make", ""]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS}
FP32: dict[str, Any] = {"precision": "fp32", "threads": 1}


def imported(folder: Path, seed: int) -> Checkpoint:
    """A checkpoint of a network that nothing is known of; its version is a hash of its files."""
    save_shipped(folder / "source", seed=seed)
    import_model(
        str(folder / "source"), folder / "out", ImportOptions(name="opaque", precisions=("fp32",), opaque=True)
    )
    return read_checkpoint(folder / "out")


def offline(checkpoint: Checkpoint) -> list[float]:
    candidates = [Candidate(text=text) for text in TEXTS]
    pairs = checkpoint.encoder().encode(QUESTION, candidates, windowing=AS_SERVED)
    scores: list[float] = rank_pairs(open_backend(checkpoint, precision="fp32", threads=1), pairs).scores.tolist()
    return scores


def rank(client: TestClient, **fields: object) -> dict[str, Any]:
    answer: dict[str, Any] = client.post("/v1/rank", json=BODY | fields).raise_for_status().json()
    return answer


@pytest.fixture
def served(open_app: Serve, tmp_path: Path) -> tuple[TestClient, Checkpoint]:
    """An app that serves an opaque checkpoint, ready."""
    checkpoint = imported(tmp_path, 0)
    client = open_app(load, checkpoint=checkpoint.path, **FP32)
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert versions.snapshot.state is State.READY, versions.snapshot.reason
    return client, checkpoint


def test_it_is_ranked_as_offline_in_two_dialects(served: tuple[TestClient, Checkpoint]) -> None:
    """The same scores; a ratio that cannot act is said; metrics count its one stage."""
    client, checkpoint = served
    answer = rank(client, drop_ratio=0.5)
    assert "this model has no exits: drop_ratio has no effect" in answer["warnings"]
    assert {result["stage"] for result in answer["results"]} == {0}
    cohere = client.post("/v1/rerank", json={"model": "opaque", "query": QUESTION, "documents": TEXTS}).json()
    expected = offline(checkpoint)
    for results, key in ((answer["results"], "score"), (cohere["results"], "relevance_score")):
        got = {result["index"]: result[key] for result in results}
        assert [got[index] for index in range(len(TEXTS))] == pytest.approx(expected, abs=1e-6)
    assert [result["index"] for result in answer["results"]] == np.argsort(-np.asarray(expected)).tolist()
    version = checkpoint.manifest.version
    counted = samples(client)
    assert counted[f"cerberank_tokens_total{{model=opaque,stage=0,version={version}}}"] > 64
    assert not [name for name in counted if "stage=1" in name]


def test_a_passed_deadline_has_the_one_stages_answer(served: tuple[TestClient, Checkpoint]) -> None:
    """A question that has begun its only stage ends it: the answer is whole."""
    client, checkpoint = served
    answer = rank(client, deadline_ms=0.001)
    assert answer["complete"] is True
    got = {result["index"]: result["score"] for result in answer["results"]}
    assert [got[index] for index in range(len(TEXTS))] == pytest.approx(offline(checkpoint), abs=1e-6)


def test_a_push_to_the_store_replaces_it(follow: Follow, store: FolderStore, tmp_path: Path) -> None:
    """Another opaque version of the same name takes over without a restart."""
    client = follow(load, **FP32)
    for seed in (0, 1):
        checkpoint = imported(tmp_path / str(seed), seed)
        store.push(checkpoint)
        store.move_label("opaque", "stable", checkpoint.manifest.version)
        wait_until(
            lambda version=checkpoint.manifest.version: "stable" in entry(client, version, "opaque").get("labels", ())
        )
        answer = rank(client)
        assert answer["version"] == checkpoint.manifest.version
        got = {result["index"]: result["score"] for result in answer["results"]}
        assert [got[index] for index in range(len(TEXTS))] == pytest.approx(offline(checkpoint), abs=1e-6)
