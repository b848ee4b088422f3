from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.service.asking import Clock
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import samples

from cerberank_service.access.access import POLL_SECONDS, Access
from cerberank_service.access.keys import KeysError, add_key, remove_key
from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.shared_paths import by_path
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.telemetry.logs import TextFormatter
from cerberank_service.telemetry.metrics import Metrics

BODY = {"question": "how tall?", "candidates": ["a", "b"]}
PATHS = [*by_path(DIALECTS), "/v2/models/fake-ranker/infer"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def bearing(secret: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {secret}".encode())]


def as_header(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def refusal(access: Access, secret: str) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        access.admit(bearing(secret))
    return caught.value


def test_only_the_holder_of_a_key_gets_in(path: Path) -> None:
    """A part of a key, a hash or no key at all are refused."""
    secret, other = add_key(path, "a"), add_key(path, "b")
    access = Access(path, Metrics())
    caller = access.admit(bearing(secret))
    assert caller is not None
    assert caller.key.name == "a"
    assert access.admit(bearing(other)) is not None
    hashed = caller.key.sha256
    for wrong in (secret[:-1], secret + "x", secret.upper(), hashed, "", "cbk-"):
        assert refusal(access, wrong).kind is Kind.UNAUTHORIZED
    with pytest.raises(ServiceError) as caught:
        access.admit([])
    assert caught.value.kind is Kind.UNAUTHORIZED


def test_without_a_file_everybody_gets_in() -> None:
    """Off by default."""
    assert Access(None, Metrics()).admit([]) is None


def test_a_file_that_cannot_be_used_is_no_open_door(path: Path) -> None:
    """The service does not start."""
    with pytest.raises(OSError, match="keys"):
        Access(path, Metrics())
    path.write_text("{")
    with pytest.raises(KeysError):
        Access(path, Metrics())


def test_quotas_refuse_with_the_time_to_come_back(path: Path) -> None:
    """Requests are counted before, tokens after; the longer wait is told, in whole seconds."""
    clock = Clock()
    secret = add_key(path, "a", requests_per_minute=2, tokens_per_minute=600)
    access = Access(path, Metrics(), clock)
    caller = access.admit(bearing(secret))
    assert caller is not None
    caller.charge(700)
    error = refusal(access, secret)
    assert (error.kind, error.retry_after) == (Kind.EXHAUSTED, 11)
    assert "tokens" in error.message
    clock.now += 10.2
    access.admit(bearing(secret))
    error = refusal(access, secret)
    assert error.retry_after == 20
    assert "requests" in error.message


def test_the_file_is_followed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A removed key stops working, a new one works, others keep what they have used; a broken file changes nothing."""
    clock = Clock()
    gone, kept = add_key(path, "gone"), add_key(path, "kept", requests_per_minute=1)
    access = Access(path, Metrics(), clock)
    access.admit(bearing(gone))
    access.admit(bearing(kept))
    remove_key(path, "gone")
    new = add_key(path, "new")
    assert access.admit(bearing(gone)) is not None  # it is looked at every second, not with every request
    clock.now += POLL_SECONDS
    assert refusal(access, gone).kind is Kind.UNAUTHORIZED
    assert refusal(access, kept).kind is Kind.EXHAUSTED
    assert access.admit(bearing(new)) is not None
    for break_it in (lambda: path.write_text("{}x"), path.unlink):
        break_it()
        clock.now += POLL_SECONDS
        with caplog.at_level(logging.ERROR):
            assert access.admit(bearing(new)) is not None
    assert caplog.text.count("left as they were") == 2


@pytest.mark.parametrize("url", PATHS)
def test_every_path_that_ranks_needs_the_key(serve: Serve, path: Path, url: str) -> None:
    """401 is answered before the body is read, in the path's error format; with the key a malformed body is 400."""
    secret = add_key(path, "a")
    client = serve(FakeBackend(), keys_file=path)
    refused = client.post(url, content=b"{" * 100)
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "API key" in refused.text
    assert client.post(url, content=b"{", headers=as_header(secret)).status_code == 400


SHAPES: dict[str, Any] = {
    "/v1/rank": lambda body: body["error"]["kind"] == "exhausted",
    "/v2/rerank": lambda body: body["message"],
    "/v1/rerank": lambda body: body["message"],
    "/jina/v1/rerank": lambda body: body["detail"],
    "/voyage/v1/rerank": lambda body: body["detail"],
    "/rerank": lambda body: body["error_type"] == "Overloaded",
    "/vllm/rerank": lambda body: body["error"]["code"] == 429,
    "/score": lambda body: body["error"]["code"] == 429,
    "/v2/models/fake-ranker/infer": lambda body: isinstance(body["error"], str),
}


def test_a_used_up_quota_is_told_in_every_dialect(serve: Serve, path: Path) -> None:
    """429 with Retry-After; the other key is not concerned."""
    spent, free = add_key(path, "spent", tokens_per_minute=1), add_key(path, "free")
    client = serve(FakeBackend(), keys_file=path)
    assert client.post("/v1/rank", json=BODY, headers=as_header(spent)).status_code == 200
    for url, fits in SHAPES.items():
        refused = client.post(url, json={}, headers=as_header(spent))
        assert refused.status_code == 429, url
        assert int(refused.headers["Retry-After"]) > 60
        assert fits(refused.json()), refused.text
    assert client.post("/v1/rank", json=BODY, headers=as_header(free)).status_code == 200
    found = samples(client)
    assert found["cerberank_key_requests_total{key=spent}"] == 1
    tokens = client.post("/v1/rank", json=BODY, headers=as_header(free)).json()["usage"]["tokens"]
    assert found["cerberank_key_tokens_total{key=spent}"] == tokens
    assert found["cerberank_errors_total{kind=exhausted}"] == len(SHAPES)


def test_probes_and_pages_need_no_key(serve: Serve, path: Path) -> None:
    """Kubernetes and Prometheus have none."""
    add_key(path, "a")
    client: TestClient = serve(FakeBackend(), keys_file=path)
    for url in ("/health/live", "/health/ready", "/v2/health/ready", "/metrics", "/v1/models", "/"):
        assert client.get(url).status_code == 200, url


def test_another_site_s_page_may_call_only_when_it_is_allowed(serve: Serve) -> None:
    """No CORS header at all by default."""
    asking = {"Origin": "https://search.example", "Access-Control-Request-Method": "POST"}
    closed = serve(FakeBackend())
    assert closed.options("/v1/rank", headers=asking).status_code == 405
    assert not [name for name in closed.post("/v1/rank", json=BODY, headers=asking).headers if "control-allow" in name]
    opened = serve(FakeBackend(), cors_origins="https://search.example, https://b.example")
    assert opened.options("/v1/rank", headers=asking).status_code == 200
    answer = opened.post("/v1/rank", json=BODY, headers=asking)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://search.example"
    other = opened.post("/v1/rank", json=BODY, headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in other.headers


@pytest.mark.parametrize("logged", [False, True])
def test_questions_are_logged_only_when_asked_for(serve: Serve, caplog: pytest.LogCaptureFixture, logged: bool) -> None:
    """Candidates and wrong fields never; a line break in a question makes no second line."""
    client = serve(FakeBackend(), log_questions=logged)
    texts = {"question": "my secret\nquestion", "candidates": ["my candidate"]}
    with caplog.at_level(logging.DEBUG):
        client.post("/v1/rank", json=texts).raise_for_status()
        client.post("/v1/rank", json=texts | {"top_k": "my field"})
    lines = [TextFormatter().format(record) for record in caplog.records]
    assert any("my secret\\nquestion" in line for line in lines) is logged
    assert not any("my candidate" in line or "my field" in line or "secret\nq" in line for line in lines)
