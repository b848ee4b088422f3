from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import samples

from cerberank_service.telemetry.quality import heads_agree

LABELS = "model=fake-ranker,version=7"
SCORE = st.sampled_from([0.1, 0.5, 0.9, np.nan])


@given(st.lists(st.tuples(SCORE, SCORE, SCORE), min_size=1, max_size=6))
def test_heads_agree_when_one_candidate_can_be_first_for_all(rows: list[tuple[float, ...]]) -> None:
    """Against a search over every choice of a best candidate by each head."""
    heads = np.array(rows)
    heads[np.isnan(heads[:, 0])] = np.nan
    heads[~np.isnan(heads[:, 0])] = np.nan_to_num(heads[~np.isnan(heads[:, 0])])
    seen = [row for row in heads.tolist() if not np.isnan(row[0])]
    if len(seen) < 2:
        assert heads_agree(heads) is None
        return
    best = [[place for place, row in enumerate(seen) if row[k] == max(other[k] for other in seen)] for k in range(3)]
    assert heads_agree(heads) == any(len(set(choice)) == 1 for choice in product(*best))


@pytest.mark.parametrize("heads", [None, np.array([[0.5], [0.6]]), np.array([[0.5, 0.6]])])
def test_one_head_or_one_candidate_agrees_with_nobody(heads: np.ndarray | None) -> None:
    """Such questions are not counted, lest they hide those that can tell."""
    assert heads_agree(heads) is None


def test_answers_are_counted_with_their_top_score(client: TestClient) -> None:
    """Mean and deviation follow from the series; agreement is what the answers' heads say."""
    tops, agreed = [], 0
    for number in range(12):
        body = {"question": f"q{number}", "candidates": ["a", f"b{number}", "c"], "return_heads": True}
        results = client.post("/v1/rank", json=body).json()["results"]
        tops.append(results[0]["score"])
        agreed += bool(heads_agree(np.array([result["heads"] for result in results])))
    found = samples(client)
    count, total = found[f"cerberank_top_score_count{{{LABELS}}}"], found[f"cerberank_top_score_sum{{{LABELS}}}"]
    squares = found[f"cerberank_top_score_squares_total{{{LABELS}}}"]
    assert (count, total / count) == (12, pytest.approx(np.mean(tops)))
    assert np.sqrt(squares / count - (total / count) ** 2) == pytest.approx(np.std(tops))
    assert found[f"cerberank_head_agreement_total{{agree=true,{LABELS}}}"] == agreed
    assert found[f"cerberank_head_agreement_total{{agree=false,{LABELS}}}"] == 12 - agreed
    assert 0 < agreed < 12


def test_an_answer_without_a_score_has_no_top_score(serve: Serve) -> None:
    """Nothing is invented for a question that no stage saw in time; one that stops at an exit has no heads."""
    client = serve(FakeBackend())
    client.post("/v1/rank", json={"question": "q", "candidates": ["a", "b"], "deadline_ms": 0.0001})
    found = samples(client)
    assert found[f"cerberank_head_agreement_total{{agree=true,{LABELS}}}"] == 0
    assert found[f"cerberank_head_agreement_total{{agree=false,{LABELS}}}"] == 0
    assert found[f"cerberank_requests_total{{complete=false,{LABELS}}}"] == 1
