"""Calibrated checkpoints through HTTP: native answers have probabilities, other dialects what they had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.calibrations import ROW, calibrated, curves
from tests.service.conftest import Serve, once_ready
from tests.service.observe import samples

from cerberank_models.checkpoint.folder import CheckpointError, read_checkpoint
from cerberank_models.ranker import Ranker
from cerberank_service.versions.loading import load

QUESTION, TEXTS = "how tall is the tower ?", ["330 metres", "the tower", "what do bees make", "the tower"]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS, "drop_ratio": 0}


def opened(open_app: Serve, folder: Path, **settings: Any) -> TestClient:
    return once_ready(open_app(load, checkpoint=folder, precision="fp32", threads=1, **settings))


def rank(client: TestClient, **fields: object) -> dict[str, Any]:
    return client.post("/v1/rank", json=BODY | fields).raise_for_status().json()


@pytest.fixture
def folder(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    rows = [ROW | {"wanted": 0.5, "threshold": 0.0}, ROW | {"wanted": 0.9, "threshold": 1.0}]
    return calibrated(tiny_checkpoint, tmp_path / "calibrated", precision=rows).path


def test_native_answers_have_the_probabilities_of_the_python_face(open_app: Serve, folder: Path) -> None:
    """Scores, raw scores and `answerable`, which is 0 without candidates; the metrics show them beside those of the
    calibration questions.
    """
    client = opened(open_app, folder)
    answer, local = rank(client), Ranker.load(folder, precision="fp32").rank(QUESTION, TEXTS, drop_ratio=0)
    assert answer["answerable"] == pytest.approx(local.answerable)
    for got, expected in zip(answer["results"], local, strict=True):
        assert got["index"] == expected.index
        assert got["score"] == pytest.approx(expected.score, abs=1e-6)
        assert got["raw_score"] == pytest.approx(expected.raw_score, abs=1e-6)
    for options in ({}, {"min_precision": 0.9}, {"latency_target_ms": 1.0}):
        nothing = rank(client, candidates=[], **options)
        assert (nothing["results"], nothing["answerable"]) == ([], 0.0)
    counted = samples(client)
    of = "{model=random-tiny,version=2}"
    assert counted[f"cerberank_answerable_count{of}"] == 4.0
    assert counted[f"cerberank_answerable_sum{of}"] == pytest.approx(answer["answerable"])
    assert counted[f"cerberank_top_score_sum{of}"] == pytest.approx(answer["results"][0]["score"])
    assert counted[f"cerberank_calibrated_top_score{of}"] == 0.6
    assert counted[f"cerberank_calibrated_answerable{of}"] == 0.5
    (entry,) = client.get("/v1/models").json()["models"]
    assert entry["calibration"]["questions"] == 300
    assert [row["wanted"] for row in entry["calibration"]["precision"]] == [0.5, 0.9]


@pytest.mark.parametrize("everywhere", [False, True])
def test_other_dialects_have_raw_scores_unless_a_setting_says_otherwise(
    open_app: Serve, folder: Path, everywhere: bool
) -> None:
    """Clients have cut these scores at thresholds of their own."""
    client = opened(open_app, folder, calibrated_scores=everywhere)
    native = rank(client)["results"]
    cohere = client.post("/v2/rerank", json={"model": "random-tiny", "query": QUESTION, "documents": TEXTS}).json()
    told = [result["score" if everywhere else "raw_score"] for result in native]
    assert [result["relevance_score"] for result in cohere["results"]] == pytest.approx(told)


def test_a_request_chooses_its_scores_by_a_header_and_every_dialect_tells_if_anything_answers(
    open_app: Serve, folder: Path
) -> None:
    """The header replaces the setting, for one request; another value is refused."""
    client = opened(open_app, folder, calibrated_scores=True)
    native = rank(client)
    body = {"query": QUESTION, "texts": TEXTS}
    for value, field in ((None, "score"), ("false", "raw_score"), ("True", "score")):
        headers = {} if value is None else {"X-Calibrated-Scores": value}
        response = client.post("/rerank", json=body, headers=headers).raise_for_status()
        assert [each["score"] for each in response.json()] == pytest.approx([each[field] for each in native["results"]])
        assert float(response.headers["X-Answerable"]) == pytest.approx(native["answerable"], abs=1e-4)
    refused = client.post("/rerank", json=body, headers={"X-Calibrated-Scores": "1"})
    assert (refused.status_code, "X-Calibrated-Scores: must be true or false" in refused.text) == (422, True)


def test_the_share_of_unanswered_questions_moves_answerable(open_app: Serve, folder: Path) -> None:
    """The setting, the argument of the Python face, and what /v1/models says of it."""
    client, half = opened(open_app, folder, unanswered_share=0.2), Ranker.load(folder, precision="fp32")
    answer = rank(client)
    few = Ranker.load(folder, precision="fp32", unanswered_share=0.2).rank(QUESTION, TEXTS, drop_ratio=0)
    assert answer["answerable"] == pytest.approx(few.answerable)
    assert answer["results"][0]["score"] == pytest.approx(few[0].score, abs=1e-6)
    assert answer["answerable"] > (half.rank(QUESTION, TEXTS, drop_ratio=0).answerable or 0.0)
    (entry,) = client.get("/v1/models").json()["models"]
    assert (entry["calibration"]["unanswered"], entry["calibration"]["unanswered_share"]) == (150, 0.2)


def test_a_version_without_calibration_says_so(open_app: Serve, tiny_checkpoint: Path) -> None:
    """Its score is the network's, `answerable` is null, no sample compares it, and a precision is refused."""
    client = opened(open_app, tiny_checkpoint)
    answer = rank(client)
    assert answer["answerable"] is None
    assert not any("raw_score" in result for result in answer["results"])
    assert not [name for name in samples(client) if name.startswith("cerberank_calibrated_")]
    refused = client.post("/v1/rank", json=BODY | {"min_precision": 0.5})
    assert refused.status_code == 422
    assert "not calibrated" in refused.json()["error"]["message"]


def test_curves_for_other_stages_are_refused(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A calibration belongs to one network."""
    with pytest.raises(CheckpointError, match=r"calibration\.json has curves of 2 stages, config\.json has 3 stages"):
        calibrated(
            tiny_checkpoint,
            tmp_path / "wrong",
            stages=curves(2),
        )
    assert read_checkpoint(tiny_checkpoint).calibration is None
