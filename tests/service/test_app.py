from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import GIVES_NAN, RAISES, SECRET, FakeBackend

from cerberank_models.request import EXAMPLE
from cerberank_service.app import ANY_HOST, create_app
from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.dialect import by_path

TEXTS = ["it is old", "330 metres", "made of iron", "in paris", "1889"]
BODY: dict[str, Any] = {"question": "how tall is it?", "candidates": TEXTS}


@pytest.fixture(scope="module")
def limited(serve_once: Serve) -> TestClient:
    """An app with small limits."""
    return serve_once(FakeBackend(), max_candidates=3, max_body_bytes=4096)


@pytest.mark.parametrize(
    ("content", "status", "kind", "message"),
    [
        (b"", 400, "malformed", "the body is empty"),
        (b'{"question": "q"}', 422, "invalid", "candidates: is required"),
        (b'{"question": "q", "candidates": ["a", "b", "c", "d"]}', 422, "invalid", "limit of 3"),
        (b'{"question": "q", "candidates": ["a"], "drop_ratio": [0.1]}', 422, "invalid", "2 exits"),
        (b'{"question": "q", "candidates": ["a"], "model": "x"}', 404, "not_found", "served: fake-ranker"),
        (b'{"question": "q", "candidates": ["%s"]}' % (b"a" * 5000), 413, "too_large", "4096 bytes"),
        (b'{"question": "q", "candidates": ["%s"]}' % RAISES.encode(), 500, "internal", "failed on this request"),
        (b'{"question": "q", "candidates": ["%s"]}' % GIVES_NAN.encode(), 500, "internal", "not a number"),
    ],
)
def test_a_bad_request_gets_the_right_status_and_says_what_to_change(
    limited: TestClient, content: bytes, status: int, kind: str, message: str
) -> None:
    """One body for every error, with the request id; the service answers the next request as ever."""
    response = limited.post("/v1/rank", content=content, headers={"X-Request-Id": "mine-1"})
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"kind", "message", "request_id"}
    assert (error["kind"], error["request_id"]) == (kind, "mine-1")
    assert message in error["message"]
    assert response.headers["X-Request-Id"] == "mine-1"
    assert SECRET not in response.text
    assert limited.post("/v1/rank", json={"question": "q", "candidates": ["a"]}).status_code == 200


def test_unknown_paths_and_methods_have_the_same_body(client: TestClient) -> None:
    """The errors have the native body, and 405 lists the allowed methods."""
    for path, meant in {"/rank": "/v1/rank", "/v1/v1/rank": "/v1/rank", "/v1/ranks": "/v1/rank"}.items():
        assert f"is {meant} meant?" in client.post(path, json={}).json()["error"]["message"]
    lost, wrong = client.get("/v1/nothing"), client.get("/v1/rank")
    assert (lost.status_code, lost.json()["error"]["kind"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["kind"]) == (405, "method_not_allowed")
    assert wrong.json()["error"]["message"].startswith("this path takes POST, not GET")
    assert wrong.headers["Allow"] == "POST"


def test_head_is_answered_as_get_without_a_body(client: TestClient) -> None:
    """On every path that answers GET, with the same status, and 405 where GET is refused too."""
    paths = [route.path for route in client.app.routes if "GET" in getattr(route, "methods", ())]  # type: ignore[attr-defined]
    assert {"/", "/health/live", "/metrics", "/v1/models", "/v2/health/ready", "/openapi.json"} <= set(paths)
    for path in [*paths, "/assets/status.js", "/v1/nothing", "/v1/rank"]:
        filled = path.replace(":path", "").format(model="fake-ranker", version="7")
        head, get = client.head(filled), client.get(filled)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        assert head.headers["Content-Type"] == get.headers["Content-Type"], path


def test_a_superfluous_slash_is_told_and_never_redirected(client: TestClient) -> None:
    """A redirect could lead from https to http. The 404 names the right path, in its format."""
    for path in ("/v1/rerank/", "/v1//rerank", "/v2/models/fake-ranker//infer", "/status/"):
        right = path.replace("//", "/").rstrip("/")
        for method in ("GET", "POST"):
            lost = client.request(method, path, follow_redirects=False)
            assert lost.status_code == 404
            assert f"without the superfluous slash it is {right}" in lost.text
        assert lost.json().keys() == client.post(right, json={}).json().keys()


def _pieces() -> Iterator[bytes]:
    yield b'{"question": "q", "candidates": ["'
    for _ in range(100):
        yield b"a" * 1000
    yield b'"]}'


def test_a_body_without_a_length_is_limited_too(limited: TestClient) -> None:
    """The limit applies to every path that takes a body."""
    for path in (*by_path(DIALECTS), "/v1/rank/batch", "/v2/models/fake-ranker/infer"):
        assert limited.post(path, content=_pieces()).status_code == 413, path


def test_the_caller_s_request_id_is_used_when_it_is_fit_for_a_log(client: TestClient) -> None:
    """Anything else is replaced, not echoed."""
    correlated = client.post("/v1/rank", json=BODY, headers={"X-Correlation-Id": "other"})
    assert correlated.headers["X-Request-Id"] == correlated.json()["id"] == "other"
    both = client.post("/v1/rank", json=BODY, headers={"X-Correlation-Id": "other", "X-Request-Id": "mine"})
    assert both.json()["id"] == "mine"
    mine = client.post("/v1/rank", json=BODY, headers={"X-Request-Id": "a.b:c-1_2"})
    assert mine.headers["X-Request-Id"] == mine.json()["id"] == "a.b:c-1_2"
    for odd in ("two words", "x" * 200, "new\tline", '"quoted"'):
        answer = client.post("/v1/rank", json=BODY, headers={"X-Request-Id": odd})
        assert answer.headers["X-Request-Id"] == answer.json()["id"] != odd
        assert len(answer.json()["id"]) == 32


def test_the_openapi_document_describes_every_wire(client: TestClient) -> None:
    """Bodies, answers and an example that works, though FastAPI never sees the bodies."""
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for path, dialects in by_path(DIALECTS).items():
        operation = document["paths"][path.replace(":path}", "}")]["post"]
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        named = [reference.removeprefix("#/components/schemas/") for reference in _references(body)]
        assert named == [dialect.request.__name__ for dialect in dialects]
        assert operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert operation["description"]
        assert len(operation["tags"]) == 1 or path in ("/v1/rerank", "/rerank")
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    assert '"default":' not in json.dumps(schemas), "generated clients would have to send the field"
    assert schemas["RankRequest"]["examples"] == [EXAMPLE]
    assert client.post("/v1/rank", json=schemas["RankRequest"]["examples"][0]).status_code == 200
    assert client.get("/docs").status_code == 200


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref":
                yield item
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_making_an_app_starts_nothing(tmp_path: Path) -> None:
    """No thread, no file, no model before the lifespan begins."""

    def never(settings: object) -> Any:
        raise AssertionError("the model was loaded")

    from cerberank_service.settings import Settings

    before = set(threading.enumerate())
    create_app(Settings(), never)
    assert set(threading.enumerate()) <= before


HOSTS = "rank.example, *.inner.example, [::1], 127.0.0.1"


@pytest.fixture(scope="module")
def named(serve_once: Serve) -> TestClient:
    """An app that answers only to these hosts."""
    return serve_once(FakeBackend(), allowed_hosts=HOSTS)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("rank.example", 200),
        ("RANK.example:8000", 200),
        ("a.inner.example", 200),
        ("[::1]:8000", 200),
        ("127.0.0.1:8000", 200),
        ("evil.example", 400),
        ("inner.example", 400),
        ("evilinner.example", 400),
        ("rank.example.evil", 400),
        ("evil.example#rank.example", 400),
        ("evil.example@rank.example", 400),
        ("[::1", 400),
        ("", 400),
    ],
)
def test_only_the_service_s_own_names_are_answered(named: TestClient, host: str, status: int) -> None:
    """With a port or without; the refusal is in the format of the path, also of a page and of an unknown path."""
    assert named.post("/v1/rank", json=BODY, headers={"Host": host}).status_code == status
    assert named.get("/", headers={"Host": host}).status_code == status
    refused = named.post("/v2/models/fake-ranker/infer", json={}, headers={"Host": host})
    assert list(refused.json()) == ["error"]
    if status == 400:
        unknown = named.get("/v1/nothing", headers={"Host": host})
        assert unknown.json()["error"]["kind"] == "malformed"
        assert "CERBERANK_ALLOWED_HOSTS" in unknown.json()["error"]["message"]


def test_probes_and_metrics_are_answered_for_any_host(named: TestClient) -> None:
    """Kubernetes, load balancers and Prometheus ask by address. The list of paths has no other one."""
    for path in ANY_HOST:
        assert named.get(path, headers={"Host": "10.0.0.7"}).status_code == 200, path
    for path in ("/v1/models", "/info", "/status", "/openapi.json", "/v2"):
        assert named.get(path, headers={"Host": "10.0.0.7"}).status_code == 400, path
