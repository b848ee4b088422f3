"""Tiny checkpoints with a first stage through HTTP: ranked as offline, wherever their vectors come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.observe import samples, service_of, wait_until

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.first_stage.embedding import embed, encoder_of
from cerberank_models.first_stage.opening import open_first_stage
from cerberank_models.ranker import Ranker
from cerberank_models.shards import map_here
from cerberank_service.versions.loading import load
from cerberank_service.versions.state import State

QUESTION = "how tall is the tower ?"
TEXTS = [" ".join(["the tower is", *(["a", "b", "c", "d", "e"][: n % 6]), *str(n), "metres tall"]) for n in range(30)]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS, "return_heads": True}
CASES = [("dot", "onnx", "int8"), ("tr-colbert", "torch", "fp32")]
ROUNDED = 2.0**-8
"""Largest distance of scores whose vectors were computed in different batches: a number of a vector may round to the
next float16 (2^-11 of it), which moves a score by less than the size of the numbers, of about 4, times that.
"""


@dataclass
class Case:
    """A checkpoint and how it is served."""

    checkpoint: Checkpoint
    backend: str
    precision: str
    open_app: Serve

    def serve(self, **settings: Any) -> TestClient:
        options = {"checkpoint": self.checkpoint.path, "backend": self.backend, "precision": self.precision}
        client = self.open_app(load, threads=1, **options | settings)
        versions = service_of(client).versions
        wait_until(lambda: versions.snapshot.state is not State.LOADING)
        return client

    def first(self) -> Any:
        return open_first_stage(self.checkpoint, kind=self.backend, precision=self.precision, threads=1)

    def pairs(self) -> Any:
        return open_backend(self.checkpoint, kind=self.backend, precision=self.precision, threads=1)

    def store(self, folder: Path) -> Path:
        first = self.first()
        made_by = {"inputs": "0" * 64, "computed_by": "0" * 64}
        config, precision = first.backend.config, first.backend.precision
        shard_map = map_here(encoder_of(first.backend, first.encoder))
        embed(lambda: iter(TEXTS), folder, **made_by, config=config, precision=precision, shard_map=shard_map)
        return folder


@pytest.fixture(params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest, with_first_stage: Callable[[str], Checkpoint], open_app: Serve) -> Case:
    shape, backend, precision = request.param
    return Case(with_first_stage(shape), backend, precision, open_app)


def rank(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/rank", json=BODY | changes).raise_for_status().json()


def by_index(answer: Any, field: str) -> list[Any]:
    found = {each["index"]: each[field] for each in answer["results"]}
    return [found[index] for index in sorted(found)]


def sources(client: TestClient) -> dict[str, int]:
    found = {name: value for name, value in samples(client).items() if name.startswith("cerberank_vectors_total")}
    return {
        source: int(next(value for name, value in found.items() if source in name))
        for source in ("cache", "store", "computed")
    }


def test_the_ranking_is_that_of_python(case: Case) -> None:
    """Stages, scores and tokens are those of `Ranker`, and the order is by stages and scores."""
    answer = rank(case.serve())
    wanted = Ranker(case.checkpoint, case.pairs(), case.first()).rank(QUESTION, TEXTS)
    assert by_index(answer, "stage") == by_index(wanted.to_json(), "stage")
    assert by_index(answer, "score") == pytest.approx(by_index(wanted.to_json(), "score"), abs=ROUNDED)
    places = [(-each["stage"], -each["score"], each["index"]) for each in answer["results"]]
    assert places == sorted(places)
    assert (answer["complete"], answer["usage"]["tokens"]) == (True, wanted.tokens)


def test_embeddings_are_the_vectors_that_the_first_stage_compares(case: Case) -> None:
    """Their cosines are its scores; vectors that no cosine compares are refused."""
    client = case.serve()
    answer = client.post("/v1/embeddings", json={"input": [QUESTION, *TEXTS]})
    if case.checkpoint.config.first_stage.token_ranker != "dot":
        assert answer.status_code == 400
        assert "not compared by cosine" in answer.json()["error"]["message"]
        return
    question, *texts = (np.asarray(each["embedding"]) for each in answer.json()["data"])
    dropped = {each["index"]: each["score"] for each in rank(client)["results"] if each["stage"] == 0}
    assert len(dropped) == len(TEXTS) // 2
    cosines = {index: (1 + float(question @ texts[index])) / 2 for index in dropped}
    assert cosines == pytest.approx(dropped, abs=ROUNDED)


def test_cached_stored_and_computed_vectors_give_the_same_scores(case: Case, tmp_path: Path) -> None:
    """Wherever the vectors come from; the metrics say where, and the answers are equal within float16's rounding."""
    client = case.serve()
    fresh = rank(client)
    assert sources(client) == {"cache": 0, "store": 0, "computed": len(TEXTS) + 1}
    cached = rank(client)
    assert cached["results"] == fresh["results"]
    assert sources(client) == {"cache": len(TEXTS) + 1, "store": 0, "computed": len(TEXTS) + 1}
    other = case.serve(vectors=case.store(tmp_path / "vectors"))
    stored = rank(other)
    assert sources(other) == {"cache": 0, "store": len(TEXTS), "computed": 1}
    assert by_index(stored, "stage") == by_index(fresh, "stage")
    assert by_index(stored, "score") == pytest.approx(by_index(fresh, "score"), abs=ROUNDED)
    (entry,) = other.get("/v1/models").json()["models"]
    assert entry["first_stage"]["vectors"] == len(TEXTS)
