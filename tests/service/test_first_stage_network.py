"""A tiny network with a first stage through HTTP, on PyTorch: ranked as offline, whatever its vectors came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.bounds import PROBABILITIES
from tests.first_stages import first_stage_config, network_of, ranker_of, scorer_weights
from tests.service.conftest import Serve
from tests.service.observe import wait_until
from tests.tiny import bert_tokenizer

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.first_stage.encoding import FirstStageEncoder
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.first_stage.torch_encoder import TorchEncoder
from cerberank_models.rank import rank_pairs
from cerberank_service.settings import Settings
from cerberank_service.versions.loading import Loaded, LoadedFirstStage
from cerberank_service.versions.state import State

QUESTION = "how tall is the tower ?"
TEXTS = [f"the tower is {' '.join(['a', 'b', 'c', 'd', 'e'][: n % 6])} {n} metres tall"[: 20 + n] for n in range(30)]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS, "return_heads": True}
SHAPES: dict[str, dict[str, Any]] = {
    "dot": {"token_ranker": "dot"},
    "tr-twin": {"first_ranker": True, "token_ranker": "twin"},
    "tr-colbert": {"first_ranker": True, "token_ranker": "colbert"},
}
ROUNDED = 2.0**-8
"""How far scores lie apart at most whose vectors were computed in different batches: a number of a vector may round
to the next float16 (2^-11 of it), which moves a score by less than the size of the numbers, of about 4, times that."""
Load = Callable[[Settings], Loaded]


@pytest.fixture(params=SHAPES)
def load(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> Load:
    shape = SHAPES[request.param]
    ranker, first_config = ranker_of(shape), first_stage_config(**shape)
    checkpoint = read_checkpoint(tiny_checkpoint)
    schedule = (0.5, *checkpoint.config.schedule)
    config = checkpoint.config.model_copy(update={"first_stage": first_config, "drop_schedule": schedule})
    checkpoint = replace(checkpoint, config=config)

    def opened(settings: Settings) -> Loaded:
        first = LoadedFirstStage(
            backend=TorchEncoder(network_of(ranker, first_config)),
            encoder=FirstStageEncoder(bert_tokenizer(), first_config, tokenizer_digest="first"),
            scorer=FirstStageScorer(first_config, scorer_weights(ranker, first_config)),
        )
        return Loaded(checkpoint, open_backend(checkpoint, kind="torch", precision="fp32", threads=1), first)

    return opened


@pytest.fixture
def client(open_app: Serve, load: Load) -> TestClient:
    client = open_app(load, precision="fp32", backend="torch")
    versions = client.app.state.service.versions  # type: ignore[attr-defined]
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert versions.snapshot.state is State.READY, versions.snapshot.reason
    return client


def rank(client: TestClient, **changes: Any) -> Any:
    return client.post("/v1/rank", json=BODY | changes).raise_for_status().json()


def by_index(answer: Any, field: str) -> list[Any]:
    found = {each["index"]: each[field] for each in answer["results"]}
    return [found[index] for index in sorted(found)]


def offline(load: Load) -> tuple[list[float], list[int]]:
    """Scores and stages: the first stage on all, then the checkpoint's own schedule on the survivors."""
    loaded = load(Settings(precision="fp32", backend="torch"))
    first = loaded.first
    assert first is not None
    (question,) = first.backend.encode(first.encoder.question(QUESTION))
    scores = first.scorer(question, first.backend.encode(first.encoder.candidates(TEXTS)))
    alive = RatioSchedule((0.5,)).survivors(0, scores)
    pairs = loaded.checkpoint.encoder().encode(QUESTION, [Candidate(text=TEXTS[row]) for row in alive])
    ranked = rank_pairs(loaded.backend, pairs, loaded.checkpoint.config.drop_policy().after_first())
    stages = np.zeros(len(TEXTS), np.int64)
    scores[alive], stages[alive] = ranked.scores, ranked.stages + 1
    return scores.tolist(), stages.tolist()


def test_the_ranking_is_the_offline_one(client: TestClient, load: Load) -> None:
    """Scores, stages and the order by them, through HTTP and by hand."""
    answer = rank(client)
    scores, stages = offline(load)
    assert by_index(answer, "stage") == stages
    assert by_index(answer, "score") == pytest.approx(scores, abs=ROUNDED)
    places = [(-each["stage"], -each["score"], each["index"]) for each in answer["results"]]
    assert places == sorted(places)
    assert answer["drop_schedule"][0] == 0.5


def test_cached_and_computed_vectors_give_the_same_scores(client: TestClient) -> None:
    """Warm equals cold exactly; vectors of the same texts that were computed in other batches are within rounding."""
    apart = [rank(client, question="b ?", candidates=[text])["complete"] for text in TEXTS]
    assert all(apart)
    cached = rank(client)
    assert rank(client)["results"] == cached["results"]
    service = client.app.state.service  # type: ignore[attr-defined]
    service.ranking.vectors.__init__(10**6)
    computed = rank(client)
    assert by_index(computed, "stage") == by_index(cached, "stage")
    assert by_index(computed, "score") == pytest.approx(by_index(cached, "score"), abs=ROUNDED)


def test_pairs_are_scored_as_without_a_first_stage(client: TestClient, load: Load) -> None:
    """Where nothing is dropped the scores are those of the ranker alone."""
    answer = rank(client, drop_ratio=0.0)
    loaded = load(Settings(precision="fp32", backend="torch"))
    pairs = loaded.checkpoint.encoder().encode(QUESTION, [Candidate(text=text) for text in TEXTS])
    keep = RatioSchedule((0.0,) * (len(loaded.checkpoint.config.stages) - 1))
    wanted = rank_pairs(loaded.backend, pairs, keep).scores
    assert by_index(answer, "score") == pytest.approx(wanted.tolist(), abs=PROBABILITIES)
