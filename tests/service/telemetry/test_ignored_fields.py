from __future__ import annotations

import logging

import pytest
from starlette.testclient import TestClient
from tests.service.observe import samples

from cerberank_service.telemetry.ignored_fields import LONGEST_NAME, MOST_NAMES
from cerberank_service.telemetry.logs import FIELDS
from cerberank_service.telemetry.metrics import Metrics

QUERY = {"model": "fake-ranker", "query": "how tall?", "documents": ["it is old", "330 metres"]}


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, str]]:
    return [getattr(record, FIELDS) for record in caplog.records if record.levelno == logging.WARNING]


def test_a_field_is_counted_each_time_and_logged_once(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """Once in each dialect, with the field's name and not its value; no label is a client's text."""
    before = set(samples(client))
    for path in ("/v1/rerank", "/v1/rerank", "/v2/rerank", "/rerank"):
        client.post(path, json=QUERY | {"overlap_tokens": 8012}).raise_for_status()
    cohere, vllm = ({"dialect": tag, "field": "overlap_tokens"} for tag in ("cohere", "vllm"))
    assert logged(caplog) == [cohere, vllm]
    after = samples(client)
    assert set(after) == before
    counts = {key: value for key, value in after.items() if "ignored_fields_total" in key and value}
    name = "cerberank_ignored_fields_total"
    assert counts == {f"{name}{{dialect=cohere}}": 3.0, f"{name}{{dialect=vllm}}": 1.0}


def test_names_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """A client that makes up names fills neither memory nor log, and silences no other dialect."""
    ignored = Metrics().ignored
    ignored.saw("cohere", ["x" * 1000, *(f"name-{number}" for number in range(2 * MOST_NAMES))])
    assert len(logged(caplog)) == MOST_NAMES
    assert max(len(fields["field"]) for fields in logged(caplog)) == LONGEST_NAME
    ignored.saw("jina", ["late"])
    assert logged(caplog)[MOST_NAMES:] == [{"dialect": "jina", "field": "late"}]
