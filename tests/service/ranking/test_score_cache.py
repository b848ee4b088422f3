from __future__ import annotations

from dataclasses import replace

import numpy as np
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, ranker_config
from tests.service.observe import samples

from cerberank_models.checkpoint.store.contract import Reference
from cerberank_models.encoding import Candidate
from cerberank_service.call import RankCall
from cerberank_service.ranking.score_cache import ScoreCache

V1 = Reference("m", "1")
A, B, C = (Candidate(text=text) for text in "abc")
TRACE = np.asarray([[0.1, 0.2], [0.3, np.nan], [0.5, 0.6]])
HEADS = np.asarray([[0.2, 0.2], [np.nan, np.nan], [0.6, 0.6]])


def call(question: str, tenant: str = "") -> RankCall:
    return RankCall(question=question, candidates=(), tenant=tenant)


def filled(entries: int = 10) -> ScoreCache:
    cache = ScoreCache(entries)
    cache.keep(V1, call("q"), (A, B, C), TRACE, HEADS)
    return cache


def test_only_candidates_that_reached_the_last_stage_are_kept() -> None:
    """The others' scores would stop a later question, with another schedule, half way."""
    known = filled().find(V1, call("q"), (B, C, A))
    assert known is not None
    assert known.rows.tolist() == [1, 2]
    assert known.trace.tolist() == [[0.5, 0.6], [0.1, 0.2]]
    assert known.heads is not None
    assert known.heads.tolist() == [[0.6, 0.6], [0.2, 0.2]]


def test_tenant_version_question_and_context_tell_pairs_apart() -> None:
    """Keys differ by tenant, version, question and context, and do not depend on how texts are split."""
    cache = filled()
    assert cache.find(V1, call("q", tenant="b"), (A,)) is None
    assert cache.find(Reference("m", "2"), call("q"), (A,)) is None
    assert cache.find(Reference("other", "1"), call("q"), (A,)) is None
    assert cache.find(V1, call("qa"), (Candidate(text=""), A)) is None
    assert cache.find(V1, call("q"), (Candidate(text="a", previous="b"), Candidate(text="", next="a"))) is None
    assert cache.find(V1, call("q"), (Candidate(text="\ud800"),)) is None


def test_how_long_texts_are_read_tells_pairs_apart() -> None:
    """A text that was cut must not be found where it is read to its end, nor where another number of tokens is read."""
    cache = filled()
    assert cache.find(V1, replace(call("q"), windowing=None), (A,)) is None
    assert cache.find(V1, replace(call("q"), most_tokens=5), (A,)) is None


def test_what_was_used_last_stays() -> None:
    """Looking it up is a use."""
    cache = filled(entries=2)
    cache.find(V1, call("q"), (A,))
    cache.keep(V1, call("q"), (B,), np.asarray([[0.1, 0.1]]), None)
    assert len(cache) == 2
    assert cache.find(V1, call("q"), (C,)) is None
    assert cache.find(V1, call("q"), (A,)) is not None


def test_without_room_nothing_is_kept() -> None:
    """The default."""
    cache = filled(entries=0)
    assert len(cache) == 0
    assert cache.find(V1, call("q"), (A,)) is None


def rank(client: TestClient, texts: list[str], **fields: object) -> list[object]:
    body = {"question": "q", "candidates": texts, "return_heads": True, **fields}
    results: list[object] = client.post("/v1/rank", json=body).raise_for_status().json()["results"]
    return results


def test_known_candidates_are_not_run_and_the_answer_is_the_same(serve: Serve) -> None:
    """Whatever share is known, with drops, heads and deadlines as if all had been run."""
    plain = serve(FakeBackend(ranker_config()))
    backend = FakeBackend(ranker_config())
    client = serve(backend, score_cache_entries=100)
    texts = [f"{number} word" for number in range(10)]
    rank(client, texts[:6])
    for fields in ({"drop_ratio": 0.5}, {"drop_ratio": [0.0, 0.4]}, {}, {"deadline_ms": 1e6}):
        for asked in (texts[:6], texts[3:], texts):
            assert rank(client, asked, **fields) == rank(plain, asked, **fields)
    backend.runs.clear()
    before = samples(client)["cerberank_cached_candidates_total{model=fake-ranker,version=7}"]
    rank(client, texts, drop_ratio=0.5)
    assert backend.runs == []
    assert samples(client)["cerberank_cached_candidates_total{model=fake-ranker,version=7}"] == before + 10
    assert samples(client)["cerberank_queued_tokens{}"] == 0
