from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend, Faults

from cerberank_service.settings import Settings
from cerberank_service.telemetry.logs import configure_logs

QUESTION = "is this secret"
BODY = {"question": QUESTION, "candidates": ["private text", "b"], "drop_ratio": [0.5, 0.0]}
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"X-Request-Id": "mine", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


Log = Callable[..., io.StringIO]


@pytest.fixture
def log_as(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """`log_as(log_format="json")` gives what the process would write to standard error from now on."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def configure(**settings: str) -> io.StringIO:
        written = io.StringIO()
        monkeypatch.setattr("sys.stderr", written)
        root.handlers = []  # pytest's own are put there anew for every test
        configure_logs(Settings.model_validate(settings))
        return written

    yield configure
    root.handlers, root.level = handlers, level


def entries(log: io.StringIO, message: str) -> list[dict[str, object]]:
    return [line for line in map(json.loads, log.getvalue().splitlines()) if line["message"].startswith(message)]


def test_every_json_line_is_an_object_that_names_its_request(serve: Serve, log_as: Log) -> None:
    """Request id, trace, version and schedule of an answer; kind and status of an error; no text of either."""
    log = log_as(log_format="json")
    client = serve(FakeBackend(faults=Faults(stage=1)))
    answer = client.post("/v1/rank", json=BODY, headers=HEADERS).json()
    client.post("/v1/rank", json={**BODY, "model": "nobody"}, headers={"X-Request-Id": "other"})
    client.post("/v1/rank", json={**BODY, "candidates": [RAISES, "b"], "drop_ratio": 0.0})
    (line,) = entries(log, "answered")
    assert (line["level"], line["request_id"], line["trace_id"]) == ("INFO", "mine", TRACE)
    assert (line["model"], line["version"], line["drop_schedule"]) == ("fake-ranker", "7", [0.5, 0.0])
    assert line["total_ms"] == answer["timing_ms"]["total"]
    unknown, failed = entries(log, "refused")
    assert (unknown["request_id"], unknown["kind"], unknown["status"]) == ("other", "not_found", 404)
    assert "trace_id" not in unknown
    assert (failed["level"], failed["status"]) == ("ERROR", 500)
    assert QUESTION not in log.getvalue()
    assert "private text" not in log.getvalue()


def test_the_question_is_logged_when_that_was_asked_for(serve: Serve, log_as: Log) -> None:
    """The question is in the line of its answer, the candidates are not logged."""
    log = log_as(log_format="json")
    serve(FakeBackend(), log_questions=True).post("/v1/rank", json=BODY)
    (line,) = entries(log, "answered")
    assert line["question"] == QUESTION
    assert "private text" not in log.getvalue()


def test_text_lines_say_the_same(serve: Serve, log_as: Log) -> None:
    """Fields follow the message of one line; a message with a percent sign stays as it is."""
    log = log_as()
    serve(FakeBackend()).post("/v1/rank", json=BODY, headers=HEADERS)
    logging.getLogger("x").warning("100%% of %d", 7)
    lines = log.getvalue().splitlines()
    (answered,) = [line for line in lines if " answered " in line]
    assert "request_id=mine" in answered
    assert "drop_schedule=[0.5, 0.0]" in answered
    assert any(line.endswith("WARNING x 100% of 7") for line in lines)


def test_an_unforeseen_error_keeps_its_traceback(serve: Serve, log_as: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback is in the log under the request's id, and not in the answer."""
    log = log_as(log_format="json")
    client = serve(FakeBackend())
    monkeypatch.setattr("cerberank_service.ranking.rank.prepare", lambda *given, **named: {}["no such key"])
    answer = client.post("/v1/rank", json=BODY, headers=HEADERS)
    (line,) = entries(log, "refused")
    assert answer.status_code == line["status"] == 500
    assert "no such key" in str(line["exc_info"])
    assert "no such key" not in answer.text


def test_a_higher_level_keeps_answers_out(serve: Serve, log_as: Log) -> None:
    """One line a request is the info level's."""
    log = log_as(log_format="json", log_level="warning")
    serve(FakeBackend()).post("/v1/rank", json=BODY)
    assert log.getvalue() == ""
