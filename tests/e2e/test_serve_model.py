"""`cerberank serve --model`: a model that transformers has written is imported once and then served."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from sentence_transformers import CrossEncoder
from tests.e2e.conftest import SERVE, launch, start, wait_until_ready
from tests.models.importing.test_source import in_hub_cache
from tests.tiny import save_cross_encoder

IMPORT_SECONDS = 300.0
"""It takes ten seconds on an idle machine: two processes import torch and transformers."""
TEXTS = ["it was built in paris .", "330 metres", "bees make honey", "how tall is the tower ? " * 20]
QUESTION = "how tall is the tower ? " * 12


def ask(model: str, log: Path, name: str, **settings: str) -> list[float]:
    """Start the service on `model`, ask for `name` once it is ready, and end it; the scores by candidate."""
    running = start(
        Path(), log, program=(*SERVE, "--model", model), seconds=IMPORT_SECONDS, CERBERANK_CHECKPOINT="", **settings
    )
    try:
        wait_until_ready(running)
        body = {"model": name, "question": QUESTION, "candidates": TEXTS}
        results = httpx.post(f"{running.url}/v1/rank", json=body).raise_for_status().json()["results"]
    finally:
        running.process.kill()
        running.process.wait()
    return [result["score"] for result in sorted(results, key=lambda result: result["index"])]


def test_a_model_is_imported_once_and_answers_as_before(tmp_path: Path) -> None:
    """By its id, from the hub's cache alone; the second start imports nothing. Scores are CrossEncoder's, in fp32."""
    folder = save_cross_encoder("bert", in_hub_cache("someone/tiny", tmp_path / "hf"), num_labels=1)
    places = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1", "CERBERANK_MODEL_CACHE": str(tmp_path / "cache")}
    first = ask("someone/tiny", tmp_path / "first.log", "someone/tiny", **places)
    again = ask("someone/tiny", tmp_path / "again.log", "tiny", **places)
    wanted = CrossEncoder(str(folder), device="cpu").predict([(QUESTION, text) for text in TEXTS])
    assert first == pytest.approx(wanted.tolist(), abs=1e-5)
    assert again == first
    assert "is imported once, into" in (tmp_path / "first.log").read_text()
    log = (tmp_path / "again.log").read_text()
    assert "is imported once" not in log
    assert "is served from" in log
    assert "scores are the model's own" in log


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("bundled", "is a Cerberank checkpoint already: set CERBERANK_CHECKPOINT="),
        ("three", "was not imported: "),
    ],
)
def test_what_cannot_be_served_ends_the_program(
    model: str, message: str, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """Exit code 2 and the reason, before anything listens."""
    folder = tiny_checkpoint if model == "bundled" else save_cross_encoder("bert", tmp_path / "three", num_labels=3)
    log = tmp_path / "log"
    process = launch(
        Path(),
        log,
        program=(*SERVE, "--model", str(folder), "--model-cache", str(tmp_path / "cache")),
        CERBERANK_CHECKPOINT="",
    )
    assert process.wait(IMPORT_SECONDS) == 2
    assert f"cerberank serve: {folder} {message}" in log.read_text()
    assert model == "bundled" or "has 3 labels" in log.read_text()
    assert "running on" not in log.read_text()
