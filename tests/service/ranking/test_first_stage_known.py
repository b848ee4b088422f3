"""Vectors that a first stage need not compute: their owner, their figures, and the bill for the rest."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.asking import held
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, FakeState, loader
from tests.service.first_stages import (
    ENCODER,
    FakeVectors,
    config_with_first_stage,
    load_with_first_stage,
    store_of,
)
from tests.service.observe import service_of, wait_until
from tests.service.ranking.conftest import BODY, TEXTS, Open, Served

from cerberank_models.backends.stage_contract import StageOutput, Vector
from cerberank_models.encoding import EncodedPairs
from cerberank_service.access.key_file import add_key
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking import pipeline
from cerberank_service.ranking.workers import LONG_BYTES
from cerberank_service.settings import Settings
from cerberank_service.versions.state import State


def test_known_vectors_skip_the_engines_first_stage(serve_first: Open) -> None:
    """A second equal call encodes no text, and answers the same; without a cache it encodes all again."""
    served = serve_first()
    cold, warm = served.rank(), served.rank()
    assert sum(served.vectors.encoded) == len(TEXTS) + 1
    assert warm["results"] == cold["results"]
    without = serve_first(vector_cache_bytes=0)
    assert without.rank()["results"] == without.rank()["results"] == cold["results"]
    assert sum(without.vectors.encoded) == 2 * (len(TEXTS) + 1)


def test_known_vectors_do_not_hide_a_full_queue(serve_first: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of twelve questions at once whose candidates' vectors are known are refused; nothing stays queued."""
    monkeypatch.setattr(Settings, "encode_workers", 1)
    served = serve_first(queue_seconds=1e-6)
    served.rank(drop_ratio=0.0)
    engine = service_of(served.client).versions.snapshot.stable()[0].engine
    assert engine.queued_tokens == 0
    with ThreadPoolExecutor(12) as pool:
        with held(served.vectors, served.pairs):
            bodies = [BODY | {"question": f"how {number}?", "drop_ratio": 0.0} for number in range(12)]
            responses = [pool.submit(served.client.post, "/v1/rank", json=body) for body in bodies]
            wait_until(lambda: sum(each.done() for each in responses) >= 10)
        statuses = [each.result(20).status_code for each in responses]
    assert 1 <= statuses.count(200) <= 2
    assert set(statuses) == {200, 503}
    wait_until(lambda: engine.queued_tokens == 0)


def test_the_room_of_the_pairs_is_kept_until_they_come(serve_first: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two jobs the expected pairs count as queued; whatever ends the question, they do no longer."""
    served = serve_first()
    engine = service_of(served.client).versions.snapshot.stable()[0].engine
    between: list[int] = []

    def failing(*given: object, **named: object) -> None:
        between.append(engine.queued_tokens)
        raise ServiceError(Kind.INTERNAL, "as a score that is not a number")

    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "score_texts", failing)
        assert served.client.post("/v1/rank", json=BODY).status_code == 500
    assert between[0] > 0
    assert engine.queued_tokens == 0
    assert served.rank()["complete"]
    assert engine.queued_tokens == 0


def test_survivors_of_a_long_body_are_read_as_a_long_body(serve_first: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short bodies do not wait for the tokenising of its pairs."""
    served = serve_first()
    workers = service_of(served.client).workers
    sizes, run = [], workers.run

    def noting(work: Callable[[], Any], *, size: int = 0) -> Any:
        sizes.append(size)
        return run(work, size=size)

    monkeypatch.setattr(workers, "run", noting)
    served.rank()
    served.rank(candidates=[*TEXTS, "word " * (LONG_BYTES // 4)])
    short, answer, long, other_answer = sizes
    assert 0 < short <= LONG_BYTES < long
    assert answer == other_answer == 0


def test_no_vector_is_kept_through_the_pairs(serve_first: Open) -> None:
    """While the survivors run as pairs, nothing refers to the vectors that were computed or found in the store."""
    served = serve_first(vector_cache_bytes=0)
    made: list[weakref.ref[Vector]] = []
    encode, run, left = served.vectors.encode, served.pairs.run, []

    def noting(texts: EncodedPairs) -> Sequence[Vector]:
        vectors = encode(texts)
        made.extend(weakref.ref(vector) for vector in vectors)
        return vectors

    def counting(state: FakeState, stage: int) -> StageOutput[FakeState]:
        # A worker's thread refers to its arguments for a moment after its result was taken.
        with suppress(AssertionError):
            wait_until(lambda: all(each() is None for each in made), seconds=5)
        left.append(sum(each() is not None for each in made))
        return run(state, stage)

    served.vectors.encode, served.pairs.run = noting, counting  # type: ignore[method-assign]
    served.rank()
    assert len(made) == len(TEXTS) + 1
    assert left == [0, 0, 0]


def test_a_score_that_is_not_a_number_is_a_failure_of_the_version(serve_first: Open) -> None:
    """Raised outside of the engine, in either worker, it counts as one of the engine does."""
    served = serve_first()
    live = service_of(served.client).versions.snapshot.stable()[0]
    scorer = live.first_stage.scorer
    live.first_stage = replace(live.first_stage, scorer=lambda question, candidates: np.full(len(candidates), np.nan))
    of = 'model="fake-ranker",version="7"'
    for failed in (1, 2):  # the second time all vectors are known
        assert served.client.post("/v1/rank", json=BODY).status_code == 500
        assert served.samples()[f"cerberank_failed_questions_total{{{of}}}"] == failed
    assert sum(served.vectors.encoded) == len(TEXTS) + 1
    live.first_stage = replace(live.first_stage, scorer=scorer)
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


def test_keys_do_not_share_vectors(serve_first: Open, tmp_path: Path) -> None:
    """The texts that one key left in the cache save another key nothing, and itself everything."""
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


def test_stage_0_has_its_series_and_drops(serve_first: Open) -> None:
    """Steps, tokens and dropped candidates of the first stage are counted under stage 0."""
    served = serve_first()
    served.rank()
    series = served.samples()
    of = 'model="fake-ranker",stage="0",version="7"'
    assert series["cerberank_engine_steps_total{" + of + "}"] == 1
    assert series["cerberank_dropped_candidates_total{" + of + "}"] == 10
    assert series["cerberank_tokens_total{" + of + "}"] > 0


def test_models_describe_the_first_stage(serve_first: Open) -> None:
    """`/v1/models` names the encoder and counts four stages and three ratios."""
    (entry,) = serve_first().client.get("/v1/models").json()["models"]
    assert entry["stages"] == 4
    assert len(entry["drop_schedule"]) == 3
    assert entry["first_stage"]["encoder"] == ENCODER
    assert entry["first_stage"]["vectors"] == 0


def test_vectors_without_a_first_stage_are_refused(open_app: Serve, tmp_path: Path) -> None:
    """A single checkpoint that cannot use the vectors that the settings name does not start, and says why."""
    config = config_with_first_stage()
    assert config.first_stage is not None
    store = store_of(tmp_path / "vectors", FakeVectors(config.first_stage), TEXTS, encoder=ENCODER)
    client = open_app(loader(FakeBackend(), tmp_path), vectors=store)
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert versions.snapshot.state is State.FAILED
    assert "has no first stage" in versions.snapshot.reason


def test_a_store_of_another_encoder_is_refused_by_name(open_app: Serve, tmp_path: Path) -> None:
    """A single checkpoint with the wrong vectors does not start, and the reason names both encoders."""
    config = config_with_first_stage()
    assert config.first_stage is not None
    vectors = FakeVectors(config.first_stage)
    load = load_with_first_stage(tmp_path, vectors, FakeBackend(config))
    client = open_app(load, vectors=store_of(tmp_path / "vectors", vectors, TEXTS, encoder="f" * 64))
    versions = service_of(client).versions
    wait_until(lambda: versions.snapshot.state is not State.LOADING)
    assert versions.snapshot.state is State.FAILED
    assert "f" * 64 in versions.snapshot.reason
    assert ENCODER in versions.snapshot.reason
