"""A service whose model has a first stage, through HTTP, against the same two steps done by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, Faults
from tests.service.first_stages import (
    ENCODER,
    FakeVectors,
    config_with_first_stage,
    load_with_first_stage,
    store_of,
)
from tests.service.observe import wait_until

from cerberank_models.config import TunedSchedule
from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate
from cerberank_models.first_stage.scorer import FirstStageScorer
from cerberank_models.rank import rank_pairs
from cerberank_service.access.keys import add_key
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.versions.state import State

QUESTION = "how tall is it?"
TEXTS = [f"text {number} {'ab' * (number % 5)}" for number in range(20)]
BODY: dict[str, Any] = {"question": QUESTION, "candidates": TEXTS, "drop_ratio": [0.5, 0.2, 0.0]}


@dataclass
class Served:
    """A service on fakes."""

    client: TestClient
    vectors: FakeVectors
    pairs: FakeBackend

    def rank(self, **changes: Any) -> Any:
        response = self.client.post("/v1/rank", json=BODY | changes)
        assert response.status_code == 200, response.text
        return response.json()

    def samples(self) -> Mapping[str, float]:
        lines = self.client.get("/metrics").text.splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}


Open = Callable[..., Served]


@pytest.fixture
def serve_first(open_app: Serve, tmp_path: Path) -> Open:
    def start(first: Faults | None = None, schedule: tuple[float, ...] = (), **settings: Any) -> Served:
        config = config_with_first_stage(schedule)
        assert config.first_stage is not None
        vectors, pairs = FakeVectors(config.first_stage, first or Faults()), FakeBackend(config)
        client = open_app(load_with_first_stage(tmp_path, vectors, pairs), **settings)
        versions = client.app.state.service.versions  # type: ignore[attr-defined]
        wait_until(lambda: versions.snapshot.state is not State.LOADING)
        assert versions.snapshot.state is State.READY, versions.snapshot.reason
        vectors.encoded.clear()
        vectors.entered.clear()
        pairs.runs.clear()
        return Served(client, vectors, pairs)

    return start


def by_hand(served: Served) -> tuple[list[int], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Order, scores and stages: score all by the first stage, drop half, rank the survivors as pairs."""
    live = served.client.app.state.service.versions.snapshot.stable()[0]  # type: ignore[attr-defined]
    first = live.first
    again = FakeVectors(served.vectors.config)
    question = again.encode(first.encoder.question(QUESTION))[0]
    scores = FirstStageScorer(again.config, {})(question, again.encode(first.encoder.candidates(TEXTS)))
    alive = np.sort(np.argsort(-scores, kind="stable")[:10])
    pairs = live.encoder.encode(QUESTION, [Candidate(text=TEXTS[row]) for row in alive])
    ranked = rank_pairs(FakeBackend(served.pairs.config), pairs, RatioSchedule((0.2, 0.0)))
    stages = np.zeros(len(TEXTS), np.int64)
    scores[alive], stages[alive] = ranked.scores, ranked.stages + 1
    order = sorted(range(len(TEXTS)), key=lambda row: (-stages[row], -scores[row], row))
    return order, scores, stages


def test_the_order_is_that_of_the_two_steps_by_hand(serve_first: Open) -> None:
    """Order, scores and stages are the offline ones; the schedule and the survivors' trace count the first stage."""
    served = serve_first()
    answer = served.rank()
    order, scores, stages = by_hand(served)
    assert [each["index"] for each in answer["results"]] == order
    assert [each["score"] for each in answer["results"]] == pytest.approx(scores[order].tolist(), abs=1e-6)
    assert [each["stage"] for each in answer["results"]] == stages[order].tolist()
    assert answer["drop_schedule"] == [0.5, 0.2, 0.0]
    assert answer["complete"]
    assert answer["warnings"] == []
    assert sum(served.vectors.encoded) == len(TEXTS) + 1
    assert served.pairs.runs == [(0, 10), (1, 8), (2, 8)]


def test_usage_counts_the_tokens_of_both_steps(serve_first: Open) -> None:
    """Cold texts and the survivors' pairs are counted; known texts cost nothing."""
    served = serve_first()
    cold, warm = served.rank(), served.rank()
    live = served.client.app.state.service.versions.snapshot.stable()[0]  # type: ignore[attr-defined]
    texts = live.first.encoder.candidates(TEXTS).tokens + live.first.encoder.question(QUESTION).tokens
    assert cold["usage"]["tokens"] - warm["usage"]["tokens"] == texts
    assert warm["usage"]["tokens"] > 0


def test_known_vectors_skip_the_engines_first_stage(serve_first: Open) -> None:
    """A second equal call encodes no text, and answers the same; without a cache it encodes all again."""
    served = serve_first()
    cold, warm = served.rank(), served.rank()
    assert sum(served.vectors.encoded) == len(TEXTS) + 1
    assert warm["results"] == cold["results"]
    without = serve_first(vector_cache_bytes=0)
    assert without.rank()["results"] == without.rank()["results"] == cold["results"]
    assert sum(without.vectors.encoded) == 2 * (len(TEXTS) + 1)


def test_stored_vectors_are_not_computed(serve_first: Open, tmp_path: Path) -> None:
    """With a store only the question is encoded; scores are those of computed vectors; metrics tell the sources."""
    fresh = serve_first()
    wanted = fresh.rank()
    served = serve_first(vectors=store_of(tmp_path / "vectors", fresh.vectors, TEXTS, encoder=ENCODER))
    assert served.rank()["results"] == wanted["results"]
    assert sum(served.vectors.encoded) == 1
    served.rank()
    assert sum(served.vectors.encoded) == 1
    found = served.samples()
    of = 'model="fake-ranker",source="{}",version="7"'
    counts = {
        source: found["cerberank_vectors_total{" + of.format(source) + "}"] for source in ("cache", "store", "computed")
    }
    assert counts == {"cache": 1.0, "store": 2.0 * len(TEXTS), "computed": 1.0}


def test_a_deadline_in_the_first_stage_answers_with_what_is_known(serve_first: Open) -> None:
    """Cached candidates have their first scores, the others none and stand last; the answer is not complete."""
    gate = threading.Event()
    gate.set()
    served = serve_first(Faults(gate=gate))
    served.rank(candidates=TEXTS[:5])
    gate.clear()
    busy = threading.Thread(target=lambda: served.rank(question="other", candidates=["z"]))
    served.vectors.entered.clear()
    busy.start()
    assert served.vectors.entered.wait(20)
    timer = threading.Timer(0.5, gate.set)
    timer.start()
    answer = served.rank(deadline_ms=200)
    busy.join(20)
    assert not answer["complete"]
    stages = {each["index"]: each["stage"] for each in answer["results"]}
    assert [stages[row] for row in range(len(TEXTS))] == [0] * 5 + [-1] * 15
    assert {each["index"] for each in answer["results"][:5]} == set(range(5))
    assert all((each["score"] is None) == (each["stage"] == -1) for each in answer["results"])


def test_a_deadline_behind_the_first_stage_answers_with_its_order(serve_first: Open) -> None:
    """Nobody's pairs were run in time: all candidates have the first stage's scores, and the answer is not complete."""
    served = serve_first()
    whole = {each["index"]: each["score"] for each in served.rank(drop_ratio=0.9)["results"] if each["stage"] == 0}
    served.pairs.faults.gate = threading.Event()
    served.pairs.entered.clear()
    busy = threading.Thread(target=lambda: served.rank(question="other", candidates=["z"]))
    busy.start()
    assert served.pairs.entered.wait(20)
    threading.Timer(0.5, served.pairs.faults.gate.set).start()
    answer = served.rank(deadline_ms=200)
    busy.join(20)
    assert not answer["complete"]
    assert {each["stage"] for each in answer["results"]} == {0}
    scores = [each["score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    found = {each["index"]: each["score"] for each in answer["results"]}
    assert {index: found[index] for index in whole} == whole


def test_warm_up_measures_the_first_stage(serve_first: Open) -> None:
    """The engine starts with measured speeds of all four stages."""
    served = serve_first()
    live = served.client.app.state.service.versions.snapshot.stable()[0]  # type: ignore[attr-defined]
    guessed = StageSpeeds(live.checkpoint.config.scored_stage_layers).seconds_per_token
    measured = live.engine.speeds.seconds_per_token
    assert all(one != other for one, other in zip(measured, guessed, strict=True))


def test_one_bad_text_fails_its_question_alone(serve_first: Open) -> None:
    """A text that makes the encoder raise, or gives NaN, is an internal error; the next question is answered."""
    served = serve_first()
    for word in ("explode", "nan"):
        response = served.client.post("/v1/rank", json=BODY | {"candidates": [*TEXTS, word]})
        assert response.status_code == 500
        assert "secret" not in response.text
    assert served.rank()["complete"]


def test_duplicates_and_contexts_share_vectors(serve_first: Open) -> None:
    """Equal texts are encoded once, whatever stands beside them, and equal candidates share their place."""
    served = serve_first()
    twins = [{"text": "same"}, {"text": "same", "previous": "before"}, {"text": "same"}, {"text": "else"}]
    answer = served.rank(candidates=twins, drop_ratio=0)
    assert sum(served.vectors.encoded) == 3
    assert served.pairs.runs[0] == (0, 3)
    scores = {each["index"]: each["score"] for each in answer["results"]}
    assert scores[0] == scores[2]


def test_cached_scores_take_part_in_the_first_drop(serve_first: Open) -> None:
    """Scores that are remembered need neither vectors nor pairs, and the answer stays the same."""
    served = serve_first(score_cache_entries=1000, vector_cache_bytes=0)
    first, again = served.rank(), served.rank()
    assert again["results"] == first["results"]
    assert sum(served.vectors.encoded) == 2 * (len(TEXTS) + 1) - 8
    assert served.pairs.runs[3:] == [(0, 2)]


def test_keys_do_not_share_vectors(serve_first: Open, tmp_path: Path) -> None:
    """What one key's texts left in the cache saves another key nothing, and itself everything."""
    path = tmp_path / "keys.json"
    secrets = add_key(path, "first"), add_key(path, "second")
    served = serve_first(keys_file=path)
    for secret, encoded in zip((*secrets, *secrets), (1, 2, 2, 2), strict=True):
        served.client.headers["Authorization"] = f"Bearer {secret}"
        served.rank()
        assert sum(served.vectors.encoded) == encoded * (len(TEXTS) + 1)


def test_a_key_pays_for_texts_and_pairs(serve_first: Open, tmp_path: Path) -> None:
    """The tokens that a key is charged are those that its answer tells; a failed question is charged nothing."""
    path = tmp_path / "keys.json"
    secret = add_key(path, "first", tokens_per_minute=10**6)
    served = serve_first(keys_file=path)
    served.client.headers["Authorization"] = f"Bearer {secret}"
    served.rank()
    before = charged(served)
    assert served.client.post("/v1/rank", json=BODY | {"candidates": ["explode"]}).status_code == 500
    assert charged(served) == before
    used = served.rank(question="another?")["usage"]["tokens"]
    assert charged(served) - before == used


def charged(served: Served) -> float:
    return sum(value for name, value in served.samples().items() if name.startswith("cerberank_key_tokens_total"))


def test_the_tuned_schedule_in_time_drops_by_its_first_ratio(serve_first: Open) -> None:
    """A latency target chooses among the tuned schedules by the whole question's predicted time."""
    served = serve_first()
    live = served.client.app.state.service.versions.snapshot.stable()[0]  # type: ignore[attr-defined]
    whole = {"map": 80.0, "map_loss": 0.0}
    tuned = (
        TunedSchedule(schedule=(0.0, 0.0, 0.0), cost=1.0, metrics=whole),
        TunedSchedule(schedule=(0.9, 0.0, 0.0), cost=0.3, metrics=whole),
    )
    config = live.checkpoint.config.model_copy(update={"tuned_schedules": tuned})
    live.checkpoint = replace(live.checkpoint, config=config)
    live.engine.predict = lambda tokens, priority: 10.0 if tokens[1] > 100 else 0.0
    body = {"drop_ratio": None, "latency_target_ms": 1000}
    assert served.rank(**body)["drop_schedule"] == [0.9, 0.0, 0.0]
    assert served.pairs.runs[0] == (0, 2)
    assert served.rank(**body, candidates=TEXTS[:3])["drop_schedule"] == [0.0, 0.0, 0.0]


def test_stage_0_has_its_series_and_drops(serve_first: Open) -> None:
    """Steps, tokens and dropped candidates of the first stage are counted under stage 0."""
    served = serve_first()
    served.rank()
    found = served.samples()
    of = 'model="fake-ranker",stage="0",version="7"'
    assert found["cerberank_engine_steps_total{" + of + "}"] == 1
    assert found["cerberank_dropped_candidates_total{" + of + "}"] == 10
    assert found["cerberank_tokens_total{" + of + "}"] > 0


def test_models_describe_the_first_stage(serve_first: Open) -> None:
    """`/v1/models` names the encoder and counts four stages and three ratios."""
    (entry,) = serve_first().client.get("/v1/models").json()["models"]
    assert entry["stages"] == 4
    assert len(entry["drop_schedule"]) == 3
    assert entry["first_stage"]["encoder"] == ENCODER
    assert entry["first_stage"]["vectors"] == 0


def test_a_store_of_another_encoder_is_refused_by_name(open_app: Serve, tmp_path: Path) -> None:
    """A single checkpoint with the wrong vectors does not start, and the reason names both encoders."""
    config = config_with_first_stage()
    assert config.first_stage is not None
    vectors = FakeVectors(config.first_stage)
    load = load_with_first_stage(tmp_path, vectors, FakeBackend(config))
    client = open_app(load, vectors=store_of(tmp_path / "vectors", vectors, TEXTS, encoder="f" * 64))
    versions = client.app.state.service.versions  # type: ignore[attr-defined]
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert versions.snapshot.state is State.FAILED
    assert "f" * 64 in versions.snapshot.reason
    assert ENCODER in versions.snapshot.reason
