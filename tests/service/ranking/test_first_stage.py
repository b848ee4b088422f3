"""A service whose model has a first stage: its works, its deadlines, its errors, through HTTP."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tests.service.asking import held
from tests.service.fakes import FakeBackend, FakeState
from tests.service.first_stages import (
    FakeVectors,
)
from tests.service.observe import service_of
from tests.service.ranking.conftest import BODY, QUESTION, TEXTS, Open, Served

from cerberank_models.backends.stage_contract import StageOutput
from cerberank_models.config import TunedSchedule
from cerberank_service.engine.cost import StageSpeeds


def answered_too_late(served: Served, busy: FakeVectors | FakeBackend) -> dict[str, Any]:
    """The answer to a question whose deadline passes while another question keeps a part of the model busy."""
    with ThreadPoolExecutor(2) as pool, held(busy):
        pool.submit(served.rank, question="other", candidates=["z"])
        assert busy.entered.wait(20)
        late = pool.submit(served.rank, deadline_ms=200)
        time.sleep(0.5)
    return dict(late.result())


def test_the_survivors_alone_are_read_as_pairs(serve_first: Open) -> None:
    """Each text is encoded once; the schedule and the survivors' trace count the first stage."""
    served = serve_first()
    answer = served.rank()
    assert answer["drop_schedule"] == [0.5, 0.2, 0.0]
    assert answer["complete"]
    assert answer["warnings"] == []
    assert sum(served.vectors.encoded) == len(TEXTS) + 1
    assert served.pairs.runs == [(0, 10), (1, 8), (2, 8)]


def test_usage_counts_the_tokens_of_both_steps(serve_first: Open) -> None:
    """Cold texts and the survivors' pairs are counted; known texts cost nothing."""
    served = serve_first()
    cold, warm = served.rank(), served.rank()
    live = service_of(served.client).versions.snapshot.stable()[0]
    texts = live.first_stage.encoder.candidates(TEXTS).tokens + live.first_stage.encoder.questions([QUESTION]).tokens
    assert cold["usage"]["tokens"] - warm["usage"]["tokens"] == texts
    assert warm["usage"]["tokens"] > 0


def test_a_deadline_in_the_first_stage_answers_with_what_is_known(serve_first: Open) -> None:
    """Cached candidates have their first scores, the others none and stand last; the answer is not complete."""
    served = serve_first()
    served.rank(candidates=TEXTS[:5])
    answer = answered_too_late(served, served.vectors)
    assert not answer["complete"]
    stages = {each["index"]: each["stage"] for each in answer["results"]}
    assert [stages[row] for row in range(len(TEXTS))] == [0] * 5 + [-1] * 15
    timing = answer["timing_ms"]
    assert timing["queue"] + timing["compute"] <= timing["total"]
    assert {each["index"] for each in answer["results"][:5]} == set(range(5))
    assert all((each["score"] is None) == (each["stage"] == -1) for each in answer["results"])


def scores_of_the_dropped(served: Served) -> dict[int, float]:
    """The first stage's scores of candidates that it drops, in an answer without a deadline."""
    return {each["index"]: each["score"] for each in served.rank(drop_ratio=0.9)["results"] if each["stage"] == 0}


def check_order_of_the_first_stage(answer: Any, whole: dict[int, float]) -> None:
    """All candidates have its scores, by which they are in order."""
    assert not answer["complete"]
    assert {each["stage"] for each in answer["results"]} == {0}
    scores = [each["score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    scores_by_index = {each["index"]: each["score"] for each in answer["results"]}
    assert {index: scores_by_index[index] for index in whole} == whole


def test_a_deadline_behind_the_first_stage_answers_with_its_order(serve_first: Open) -> None:
    """Nobody's pairs were run in time: all candidates have the first stage's scores, and the answer is not complete."""
    served = serve_first()
    whole = scores_of_the_dropped(served)
    answer = answered_too_late(served, served.pairs)
    check_order_of_the_first_stage(answer, whole)


def test_a_deadline_within_the_pairs_first_stage_keeps_the_first_stages_order(serve_first: Open) -> None:
    """Two of several steps ran in time, of the longest pairs, not of the best: no pair's score counts yet."""
    served = serve_first(step_tokens=128)
    whole = scores_of_the_dropped(served)
    run, steps = served.pairs.run, []

    def slow(state: FakeState, stage: int) -> StageOutput[FakeState]:
        steps.append((stage, len(state.pairs)))
        time.sleep(1.2 * (len(steps) > 1))
        return run(state, stage)

    served.pairs.run = slow  # type: ignore[method-assign]
    answer = served.rank(drop_ratio=0.0, deadline_ms=1000)
    assert [stage for stage, _ in steps] == [0, 0]
    assert sum(rows for _, rows in steps) < len(TEXTS)
    check_order_of_the_first_stage(answer, whole)


def test_warm_up_measures_the_first_stage(serve_first: Open) -> None:
    """The engine starts with measured speeds of all four stages."""
    served = serve_first()
    live = service_of(served.client).versions.snapshot.stable()[0]
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


def test_refused_truncation_costs_no_vector(serve_first: Open) -> None:
    """A text that is too long as a pair is refused before the engine, whether or not the first stage would drop it."""
    served = serve_first(schedule=(0.9, 0.0, 0.0))
    body = {"query": QUESTION, "texts": TEXTS, "truncate": False}
    for number in range(6):
        text = f"{number} {'long ' * 20_000}"
        response = served.client.post("/rerank", json=body | {"texts": [*TEXTS, text]})
        assert response.status_code == 422
        assert "the end of 1 candidate was not read" in response.text
    assert served.vectors.encoded == []
    assert served.client.post("/rerank", json=body).status_code == 200


def test_the_tuned_schedule_in_time_drops_by_its_first_ratio(serve_first: Open) -> None:
    """A latency target chooses among the tuned schedules by the whole question's predicted time."""
    served = serve_first()
    live = service_of(served.client).versions.snapshot.stable()[0]
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


def test_the_lexical_layer_stands_before_the_first_stage(serve_first: Open) -> None:
    """Dropped candidates get no vector and are counted apart; stages and drop ratios are numbered as without it."""
    served = serve_first()
    texts = [*(f"tall text {number}" for number in range(10)), *TEXTS[:10]]
    answer = served.rank(candidates=texts, lexical_ratio=0.5)
    out = [result for result in answer["results"] if "lexical_score" in result]
    assert sorted(result["index"] for result in out) == list(range(10, 20))
    assert {result["stage"] for result in out} == {-1}
    assert sum(served.vectors.encoded) == 1 + 10
    assert [result["stage"] for result in answer["results"]][:10] == [3] * 4 + [1] * 1 + [0] * 5
    alone = served.rank(candidates=texts[:10])
    assert alone["results"] == answer["results"][:10]
    counted = {name.partition("{")[0]: value for name, value in served.samples().items() if 'stage="' not in name}
    assert counted["cerberank_lexical_dropped_candidates_total"] == 10
