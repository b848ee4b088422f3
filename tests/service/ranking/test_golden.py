"""The hourly check of golden questions, in an app of the fake ranker."""

from __future__ import annotations

import logging

import pytest
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, FakeState
from tests.service.observe import samples, service_of

from cerberank_models.backends.stage_contract import StageOutput

DEVIATION = "cerberank_golden_deviation{model=fake-ranker,version=7}"


class Drifting(FakeBackend):
    """Its scores differ by `shift` from those of the fake."""

    shift = 0.0

    def run(self, state: FakeState, stage: int) -> StageOutput[FakeState]:
        output = super().run(state, stage)
        output.scores[:] += self.shift
        return output


def test_scores_that_have_changed_since_the_load_are_reported(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """In units of the tolerance; a version that gives its scores again is well again."""
    backend = Drifting()
    client = serve(backend)
    golden = service_of(client).golden
    series = []
    for backend.shift in (0.0, 0.02, 0.0):
        golden.check()
        series.append(samples(client)[DEVIATION])
    assert series[0] == series[2] < 1.0 < series[1]
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert error.getMessage() == "fake-ranker@7 does not give its golden scores any more"


def test_a_version_that_does_not_answer_is_tried_again(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A check that fails says so, and changes no figure."""
    client = serve(FakeBackend())
    service = service_of(client)
    service.versions.snapshot.live()[0].engine.stop(0.0)
    service.golden.check()
    assert "the golden questions of fake-ranker@7 were not answered" in caplog.text
    assert samples(client)[DEVIATION] == 0.0
