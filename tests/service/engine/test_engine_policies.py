"""An engine under other drop policies and other shapes of rankers than the usual ones."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.margin import Margin
from tests.service.asking import ranked
from tests.service.conftest import Start
from tests.service.fakes import FakeBackend, ranker_config

from cerberank_models.drop import RatioSchedule
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.rank_pairs import rank_pairs

texts = st.lists(st.text("abc d", min_size=0, max_size=30), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts, st.sampled_from([0.0, 0.2, 0.6, 1.0]), st.sampled_from([1, 60, 10_000]))
def test_a_policy_without_ratios_is_followed(
    start: Start, encoder: PairEncoder, asked: list[str], margin: float, step_tokens: int
) -> None:
    """The result equals that of `rank_pairs`, together with a question that drops by ratios."""
    running, policy = start(FakeBackend(), step_tokens=step_tokens), Margin(stages=3, margin=margin)
    future, other = running.ask(asked, policy=policy), running.ask(asked, policy=RatioSchedule((0.3, 0.0)))
    alone = rank_pairs(FakeBackend(), encoder.encode("how?", [Candidate(text=text) for text in asked]), policy)
    got = ranked(future)
    np.testing.assert_array_equal(got.order, alone.order)
    np.testing.assert_array_equal(got.scores, alone.scores)
    np.testing.assert_array_equal(got.stages, alone.stages)
    assert ranked(other).complete


def test_a_last_stage_without_a_layer_is_served(start: Start) -> None:
    """Heads of no layer cost no work in fairness, a little in predicted time, and their questions end."""
    config = ranker_config(head_layers=0)
    running = start(FakeBackend(config), step_tokens=60)
    assert config.stage_layers[-1] == 0.0
    assert min(running.engine.speeds.seconds_per_token) > 0.0
    assert running.engine.predict((0.0, 0.0, 100.0), 0) > 0.0
    for future in [running.ask([f"{number} abc" for number in range(20)]) for _ in range(3)]:
        assert ranked(future).stages.tolist() == [2] * 20
