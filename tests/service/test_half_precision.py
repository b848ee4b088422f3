"""The real service on PyTorch in half precision, on the CPU, with checkpoints that have no scores of that precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.program import program
from tests.service.conftest import Serve
from tests.service.observe import service_of, wait_until
from tests.tiny import save_cross_encoder

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.golden import HALF_TOLERANCE
from cerberank_service.versions.loading import load
from cerberank_service.versions.state import State

import_main = program("import")

BODY = {"question": "how tall is the tower ?", "candidates": ["it was built in paris", "330 metres", "bees make honey"]}


def scores(client: TestClient) -> np.ndarray:
    results = client.post("/v1/rank", json=BODY | {"drop_ratio": 0.0}).raise_for_status().json()["results"]
    return np.asarray([result["score"] for result in sorted(results, key=lambda result: result["index"])])


def opened(open_app: Serve, checkpoint: Path, **settings: Any) -> TestClient:
    client = open_app(load, checkpoint=str(checkpoint), device="cpu", **settings)
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    return client


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_it_answers_nearly_as_in_fp32(precision: str, tiny_checkpoint: Path, tmp_path: Path, open_app: Serve) -> None:
    """A checkpoint of `import`, and one with golden scores of fp32 and int8, are ready and answer."""
    checkpoint = tiny_checkpoint
    if precision == "fp16":
        checkpoint = tmp_path / "imported"
        source = save_cross_encoder("electra", tmp_path / "source")
        assert import_main([str(source), str(checkpoint), "--forms", "none"]) == 0
    exact = opened(open_app, checkpoint, backend="torch", precision="fp32")
    half = opened(open_app, checkpoint, backend="torch", precision=precision)
    (entry,) = half.get("/v1/models").json()["models"]
    assert (entry["state"], entry["precision"]) == ("ready", precision), entry["reason"]
    assert entry["source"] == Path(read_checkpoint(checkpoint).manifest.source).name
    got, expected = scores(half), scores(exact)
    assert 0 < np.abs(got - expected).max() <= HALF_TOLERANCE[precision]
    assert len(set(got)) == len(BODY["candidates"])
