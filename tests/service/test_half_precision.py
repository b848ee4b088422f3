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
shape_main = program("checkpoint random")

BODY = {"question": "how tall is the tower ?", "candidates": ["it was built in paris", "330 metres", "bees make honey"]}


def imported(out: Path, scratch: Path) -> None:
    source = save_cross_encoder("electra", scratch / "source")
    assert import_main([str(source), str(out), "--precisions", ""]) == 0


def shaped(out: Path, scratch: Path) -> None:
    small = ["--width", "32", "--attention-heads", "4", "--exits", "1", "--max-length", "48"]
    tokenizer = save_cross_encoder("bert", scratch / "tokenizer") / "tokenizer.json"
    assert shape_main(["B2", "3H1", str(out), *small, "--tokenizer", str(tokenizer)]) == 0


@pytest.fixture(scope="module", params=[imported, shaped, None], ids=["imported", "random", "with ONNX forms"])
def checkpoint(request: pytest.FixtureRequest, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param is None:
        return tiny_checkpoint
    scratch = tmp_path_factory.mktemp("made")
    request.param(scratch / "out", scratch)
    return scratch / "out"


def scores(client: TestClient) -> np.ndarray:
    results = client.post("/v1/rank", json=BODY | {"drop_ratio": 0.0}).raise_for_status().json()["results"]
    return np.asarray([result["score"] for result in sorted(results, key=lambda result: result["index"])])


def opened(open_app: Serve, checkpoint: Path, **settings: Any) -> TestClient:
    client = open_app(load, checkpoint=str(checkpoint), device="cpu", **settings)
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    return client


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_it_answers_nearly_as_in_fp32(checkpoint: Path, precision: str, open_app: Serve) -> None:
    """The checkpoints of `import` and `shape`, and one with golden scores of fp32 and int8, are ready and answer."""
    exact = opened(open_app, checkpoint, backend="torch", precision="fp32")
    half = opened(open_app, checkpoint, backend="torch", precision=precision)
    (entry,) = half.get("/v1/models").json()["models"]
    assert (entry["state"], entry["precision"]) == ("ready", precision), entry["reason"]
    assert entry["source"] == Path(read_checkpoint(checkpoint).manifest.source).name
    got, expected = scores(half), scores(exact)
    assert 0 < np.abs(got - expected).max() <= HALF_TOLERANCE[precision]
    assert len(set(got)) == len(BODY["candidates"])


@pytest.mark.parametrize(
    ("settings", "command"),
    [
        ({"backend": "torch", "precision": "bf16"}, "`cerberank export FOLDER OUT` keeps it"),
        ({"backend": "onnx", "precision": "fp16"}, "cerberank export FOLDER OUT --precisions fp16"),
    ],
)
def test_what_cannot_be_served_names_the_command(settings: dict[str, str], command: str, open_app: Serve) -> None:
    """The bundled checkpoint has no weights and no fp16 graphs: the service says what makes them."""
    client = open_app(load, checkpoint=None, device="cpu", **settings)
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert client.get("/health/ready").status_code == 503
    assert command in client.get("/v1/models").json()["models"][0]["reason"]
