from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from cerberank_service.errors import Refusal
from cerberank_service.telemetry.refusals import SECONDS, RefusalLog


def test_an_overload_has_one_line_at_once_and_one_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With the numbers by reason; a minute without refusals has none, and after it the next one has a line again."""
    waiting: list[tuple[float, Callable[[], None]]] = []
    log = RefusalLog(lambda seconds, then: waiting.append((seconds, then)))

    def pass_a_minute() -> None:
        ((seconds, then),) = waiting
        assert seconds == SECONDS
        waiting.clear()
        then()

    def told() -> list[dict[str, int]]:
        found = [record.__dict__["fields"] for record in caplog.records]
        caplog.clear()
        return found

    assert log.level_of(Refusal("queue")) == logging.WARNING
    assert {log.level_of(Refusal(reason)) for reason in ("queue", "queue", "memory")} == {logging.DEBUG}
    assert told() == []
    pass_a_minute()
    assert told() == [{"refused": 3, "queue": 2, "memory": 1}]
    assert log.level_of(Refusal("queue")) == logging.DEBUG
    pass_a_minute()
    assert told() == [{"refused": 1, "queue": 1}]
    pass_a_minute()
    assert (told(), waiting) == ([], [])
    assert log.level_of(Refusal("queue")) == logging.WARNING


def test_a_deadline_that_no_replica_meets_is_no_load() -> None:
    """Each has its line, and starts no minute."""
    log = RefusalLog(lambda seconds, then: pytest.fail("a timer was started"))
    assert [log.level_of(Refusal("deadline")) for _ in range(2)] == [logging.INFO] * 2
