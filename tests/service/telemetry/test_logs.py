from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import RAISES, FakeBackend, Faults
from tests.service.observe import samples

from cerberank_service.access.key_file import add_key
from cerberank_service.errors import Refusal
from cerberank_service.settings import Settings
from cerberank_service.telemetry.logs import (
    FIELDS,
    LONGEST_NAME,
    MOST_NAMES,
    REFUSAL_SECONDS,
    DroppingHandler,
    IgnoredFields,
    RefusalLog,
    configure_logs,
)

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


def text_fields(line: str) -> dict[str, str]:
    """The fields as a reader of text lines sees them."""
    return dict(re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)', line))


def test_every_json_line_holds_each_field_once(serve: Serve, log_as: Log, tmp_path: Path) -> None:
    """Flat, with the time in RFC 3339, path, key, client and a reason; without uvicorn's message for terminals."""
    log = log_as(log_format="json")
    header = {"Authorization": "Bearer " + add_key(tmp_path / "keys.json", "search", requests_per_minute=2)}
    client = serve(FakeBackend(), keys_file=tmp_path / "keys.json")
    logging.getLogger("uvicorn.error").info("Started", extra={"color_message": "\x1b[36mStarted"})
    for key in (header, header, header, {}):
        client.post("/v1/rank", json=BODY if key else {}, headers=key)
    for line in log.getvalue().splitlines():
        names = [name for name, _ in json.loads(line, object_pairs_hook=list)]
        assert len(names) == len(set(names))
        assert not {"fields", "color_message", "asctime"} & set(names)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", json.loads(line)["time"])
    first, _ = entries(log, "answered")
    assert (first["path"], first["client"], first["key"]) == ("/v1/rank", "testclient", "search")
    spent, unknown = entries(log, "refused")
    assert (spent["key"], spent["reason"]) == ("search", "this key's requests of the minute are used up")
    assert "key" not in unknown
    assert str(unknown["reason"]).startswith("this service needs an API key")


WORD = "confidential"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/rank", {**BODY, WORD: 1}, "extra_forbidden"),
    ("/v1/rank", {**BODY, "top_k": WORD}, "int_type"),
    ("/v1/rank", {"question": WORD}, "missing"),
    ("/v1/rank", {**BODY, "model": WORD}, ""),
    ("/v2/rerank", {"query": WORD, "documents": [1], "model": WORD}, ""),
    ("/v2/models/fake-ranker/infer", {"inputs": [{"name": WORD, "datatype": WORD, "shape": [1], "data": [WORD]}]}, ""),
]


def test_a_refusal_says_why_without_a_text_of_the_request(serve: Serve, log_as: Log) -> None:
    """Types of validation errors, and fixed messages; names of fields and of models may come from the client."""
    log = log_as(log_format="json")
    client = serve(FakeBackend())
    for url, body, _ in REFUSED:
        assert client.post(url, json=body).status_code in {404, 422}
    for (url, _, reason), line in zip(REFUSED, entries(log, "refused"), strict=True):
        assert line["path"] == url
        assert reason in str(line.get("reason"))
    assert WORD not in log.getvalue()


FORGED = ["x kind=internal status=500", 'x" kind=internal', 'x\\" kind=internal', "x\n2026 ERROR", "\u2028 kind=a"]


def test_a_question_that_is_logged_forges_no_field_and_no_line(serve: Serve, log_as: Log) -> None:
    """Its field is the question as JSON; the line has no other field than those of every answer."""
    log = log_as()
    client = serve(FakeBackend(), log_questions=True)
    for question in FORGED:
        client.post("/v1/rank", json={**BODY, "question": question})
    lines = [text_fields(line) for line in log.getvalue().splitlines() if " answered " in line]
    assert [json.loads(line["question"]) for line in lines] == FORGED
    assert not any("kind" in line for line in lines)
    assert "private text" not in log.getvalue()


def test_a_name_in_a_store_forges_no_line(log_as: Log) -> None:
    """Neither in a message nor in an exception that is logged with its traceback; a terminal gets no sequence."""
    forged = "surplus\n2026-11-23T10:00:00.000Z INFO x answered request_id=forged \x1b[31m"
    log = log_as()
    logging.getLogger("x").error("rejected: %s", forged)
    try:
        raise ValueError(forged)
    except ValueError:
        logging.getLogger("x").exception("failed")
    lines = log.getvalue().splitlines()
    assert [line for line in lines if line.startswith("2026-11-23T10:00:00")] == []
    assert sum(not line.startswith("  ") for line in lines) == 2
    assert "surplus\\n2026" in lines[0]
    assert "\x1b" not in log.getvalue()


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
    assert line["compute_ms"] == answer["timing_ms"]["compute"]
    assert line["total_ms"] >= answer["timing_ms"]["total"]  # which ends before the answer is written
    unknown, failed = entries(log, "refused")
    assert (unknown["request_id"], unknown["kind"], unknown["status"]) == ("other", "not_found", 404)
    assert "trace_id" not in unknown
    assert (failed["level"], failed["status"]) == ("ERROR", 500)
    assert QUESTION not in log.getvalue()
    assert "private text" not in log.getvalue()


def test_text_lines_say_the_same(serve: Serve, log_as: Log) -> None:
    """Fields follow the message of one line; a message with a percent sign stays as it is."""
    log = log_as()
    serve(FakeBackend()).post("/v1/rank", json=BODY, headers=HEADERS)
    logging.getLogger("x").warning("100%% of %d", 7)
    lines = log.getvalue().splitlines()
    (answered,) = [line for line in lines if " answered " in line]
    named = text_fields(answered)
    assert (named["request_id"], named["drop_schedule"], named["path"]) == ("mine", "[0.5,0.0]", "/v1/rank")
    assert any(line.endswith("WARNING x 100% of 7") for line in lines)


def test_an_unforeseen_error_keeps_its_traceback(serve: Serve, log_as: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback is in the log under the request's id, and not in the answer."""
    log = log_as(log_format="json")
    client = serve(FakeBackend())
    monkeypatch.setattr("cerberank_service.ranking.pipeline.prepare", lambda *given, **named: {}["no such key"])
    answer = client.post("/v1/rank", json=BODY, headers=HEADERS)
    (line,) = entries(log, "refused")
    assert answer.status_code == line["status"] == 500
    assert "no such key" in str(line["exc_info"])
    assert "no such key" not in answer.text


@contextmanager
def piped() -> Iterator[tuple[logging.Logger, DroppingHandler, Callable[[], bytes]]]:
    """A logger whose lines go to a pipe, its handler, and a function that reads what is in the pipe."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with open(reader, "rb", buffering=0) as read, open(writer, "w") as stream:
        logger, handler = logging.Logger("piped"), DroppingHandler(stream)
        logger.addHandler(handler)
        yield logger, handler, lambda: read.read(1 << 22) or b""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cerberank_service.telemetry.logs.PATIENCE_MS", 1)


def test_a_log_that_nobody_reads_loses_lines_and_blocks_nobody(impatient: None) -> None:
    """They are counted; those before and after are whole."""
    wanted = [f"line {number} {'x' * (number % 300)}" for number in range(3000)]
    with piped() as (logger, handler, content):
        for line in wanted:
            logger.warning(line)
        dropped = handler.dropped
        seen = content().decode().splitlines()
        assert dropped == len(wanted) - len(seen) > 1000
        assert seen == wanted[: len(seen)]
        logger.warning("long %s", "z" * 10_000)
        assert (content(), handler.dropped) == (b"long " + b"z" * 10_000 + b"\n", dropped)


def test_a_line_without_room_for_its_rest_is_cut_and_the_next_begins_anew(impatient: None) -> None:
    """So that a part of one record does not look like another field of the next, nor after further lost ones."""
    with piped() as (logger, handler, content):
        logger.warning("a" * 10_000_000)
        logger.warning("lost")
        assert handler.dropped == 2
        first = content()
        logger.warning("next")
        logger.warning("last")
        assert first == b"a" * len(first)
        assert content() == b"\nnext\nlast\n"


def test_a_log_in_a_file_is_whole(tmp_path: Path) -> None:
    """A file always has room."""
    with (tmp_path / "log").open("w") as stream:
        logger = logging.Logger("file")
        logger.addHandler(DroppingHandler(stream))
        logger.warning("\ud800 %s", "x" * 20_000)
    assert (tmp_path / "log").read_text() == "\\ud800 " + "x" * 20_000 + "\n"


def test_dropped_lines_are_a_metric(serve: Serve, log_as: Log, impatient: None) -> None:
    """Those of the process's own log; other loggers do not count."""
    log_as()
    client = serve(FakeBackend())
    with piped() as (logger, handler, _):
        logging.getLogger().addHandler(handler)
        for _ in range(100):
            logger.warning("x" * 10_000)
        assert 90 < samples(client)["cerberank_dropped_log_lines_total{}"] <= handler.dropped


QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres"]}


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [getattr(record, FIELDS) for record in caplog.records if record.levelno == logging.WARNING]


def test_an_ignored_field_is_logged_once(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """Once in each dialect, with the field's name and not its value."""
    for path in ("/v1/rerank", "/v1/rerank", "/v2/rerank", "/rerank"):
        client.post(path, json=QUERY | {"overlap_tokens": 8012}).raise_for_status()
    cohere, vllm = ({"dialect": tag, "field": "overlap_tokens"} for tag in ("cohere", "vllm"))
    assert logged(caplog) == [cohere, vllm]


def test_names_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A client that makes up names fills neither memory nor log, and silences no other dialect."""
    ignored = IgnoredFields()
    ignored.log("cohere", ["x" * 1000, *(f"name-{number}" for number in range(2 * MOST_NAMES))])
    assert len(logged(caplog)) == MOST_NAMES
    assert max(len(fields["field"]) for fields in logged(caplog)) == LONGEST_NAME
    ignored.log("jina", ["late"])
    assert logged(caplog)[MOST_NAMES:] == [{"dialect": "jina", "field": "late"}]


def test_an_overload_has_one_line_at_once_and_one_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """With the numbers by reason; a minute without refusals has none, and after it the next one has a line again."""
    waiting: list[tuple[float, Callable[[], None]]] = []
    log = RefusalLog(lambda seconds, then: waiting.append((seconds, then)))

    def pass_a_minute() -> None:
        ((seconds, then),) = waiting
        assert seconds == REFUSAL_SECONDS
        waiting.clear()
        then()

    def logged_numbers() -> list[dict[str, int]]:
        numbers = [record.__dict__["fields"] for record in caplog.records]
        caplog.clear()
        return numbers

    assert log.level_of(Refusal("queue")) == logging.WARNING
    assert {log.level_of(Refusal(reason)) for reason in ("queue", "queue", "memory")} == {logging.DEBUG}
    assert logged_numbers() == []
    pass_a_minute()
    assert logged_numbers() == [{"refused": 3, "queue": 2, "memory": 1}]
    assert log.level_of(Refusal("queue")) == logging.DEBUG
    pass_a_minute()
    assert logged_numbers() == [{"refused": 1, "queue": 1}]
    pass_a_minute()
    assert (logged_numbers(), waiting) == ([], [])
    assert log.level_of(Refusal("queue")) == logging.WARNING


def test_a_deadline_that_no_replica_meets_is_no_load() -> None:
    """Each has its line, and starts no minute."""
    log = RefusalLog(lambda seconds, then: pytest.fail("a timer was started"))
    assert [log.level_of(Refusal("deadline")) for _ in range(2)] == [logging.INFO] * 2
