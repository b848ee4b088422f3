from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from starlette.testclient import TestClient
from tests.service.asking import Clock
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.observe import samples, wait_until

from cerberank_service.access.access import POLL_SECONDS, Access, Bucket, Caller, bearer
from cerberank_service.access.key_file import Key, KeysError, add_key, read_keys, remove_key
from cerberank_service.dialects import DIALECTS
from cerberank_service.dialects.dialect import by_path
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.http.accept import CALIBRATED, TIMEOUT
from cerberank_service.telemetry.metrics import Metrics

BODY = {"question": "how tall?", "candidates": ["a", "b"]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def bearing(secret: str) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {secret}".encode())]


def as_header(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def admit(access: Access, secret: str) -> Caller:
    caller = access.caller(bearing(secret))
    caller.enter()
    return caller


def refusal(access: Access, secret: str) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        admit(access, secret)
    return caught.value


def test_only_the_holder_of_a_key_gets_in(path: Path) -> None:
    """A part of a key, a hash or no key at all are refused."""
    secret, other = add_key(path, "a"), add_key(path, "b")
    access = Access(path, Metrics())
    caller = admit(access, secret)
    assert caller.key.name == "a"
    assert admit(access, other).key.name == "b"
    hashed = caller.key.sha256
    for wrong in (secret[:-1], secret + "x", secret.upper(), hashed, "", "cbk-"):
        assert refusal(access, wrong).kind is Kind.UNAUTHORIZED
    with pytest.raises(ServiceError) as caught:
        access.caller([])
    assert caught.value.kind is Kind.UNAUTHORIZED


def test_a_removed_key_is_told_from_none(path: Path) -> None:
    """The client learns that its key is the reason, and the log whose key it was: by the id of `keys list`."""
    secret = add_key(path, "a")
    access = Access(path, Metrics())
    known = admit(access, secret).key.id
    with pytest.raises(ServiceError, match="needs an API key"):
        access.caller([])
    remove_key(path, "a")
    access = Access(path, Metrics())
    error = refusal(access, secret)
    assert error.message == "this API key is not known: it is wrong, or it was removed"
    assert error.logged.endswith(f"id {known}")
    assert secret[4:] not in error.message + error.logged


def test_a_file_that_cannot_be_used_is_no_open_door(path: Path) -> None:
    """The service does not start."""
    with pytest.raises(KeysError, match=r"CERBERANK_KEYS_FILE=.*keys\.json cannot be read: No such file"):
        Access(path, Metrics())
    path.write_text("{")
    with pytest.raises(KeysError):
        Access(path, Metrics())


def test_quotas_refuse_with_the_time_to_come_back(path: Path) -> None:
    """Requests are counted before, tokens once they are known; the longer wait is told, in whole seconds."""
    clock = Clock()
    secret = add_key(path, "a", requests_per_minute=2, tokens_per_minute=600)
    metrics = Metrics()
    access = Access(path, metrics, clock)
    with admit(access, secret).charging(700):
        pass
    error = refusal(access, secret)
    assert (error.kind, error.retry_after) == (Kind.EXHAUSTED, 11)
    assert "tokens" in error.message
    clock.now += 10.2
    admit(access, secret)
    error = refusal(access, secret)
    assert error.retry_after == 20
    assert "requests" in error.message
    text = generate_latest(metrics.registry).decode()
    assert f'cerberank_key_exhausted_total{{key="{read_keys(path)[0].id}"}} 2.0' in text


def test_a_question_that_fails_or_is_refused_gives_its_tokens_back(path: Path) -> None:
    """A client that hangs up pays, because its question may have run."""
    secret = add_key(path, "a", tokens_per_minute=600)
    access = Access(path, Metrics(), Clock())
    caller = admit(access, secret)
    with pytest.raises(ServiceError), caller.charging(700):
        raise ServiceError(Kind.UNAVAILABLE, "refused")
    with pytest.raises(asyncio.CancelledError), caller.charging(700):
        raise asyncio.CancelledError
    assert refusal(access, secret).retry_after == 11


@given(st.integers(1, 1000), st.lists(st.tuples(st.floats(0.0, 20.0), st.integers(1, 500), st.booleans()), min_size=1))
def test_however_many_at_once_the_overdraft_is_one_question(
    per_minute: int, asked: list[tuple[float, int, bool]]
) -> None:
    """All of them are let in before any is charged; what is served is the quota, its refill, and one question."""
    clock = Clock()
    caller = Caller(Key(name="a", sha256="0" * 64, created="", tokens_per_minute=per_minute), Metrics(), clock)
    for _ in asked:
        caller.enter()
    served = 0
    for pause, tokens, fails in asked:
        clock.now += pause
        with suppress(ServiceError), caller.charging(tokens):
            if fails:
                raise ServiceError(Kind.UNAVAILABLE, "refused")
            served += tokens
    largest = max(tokens for _, tokens, _ in asked)
    assert served <= per_minute + (clock.now - 100.0) * per_minute / 60.0 + largest + 1e-6


def test_the_file_is_followed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A removed key stops working, a new one works, others keep what they have used; a broken file changes nothing."""
    clock = Clock()
    gone, kept = add_key(path, "gone"), add_key(path, "kept", requests_per_minute=1)
    access = Access(path, Metrics(), clock)
    admit(access, gone)
    admit(access, kept)
    remove_key(path, "gone")
    new = add_key(path, "new")
    assert admit(access, gone).key.name == "gone"  # it is looked at every second, not with every request
    clock.now += POLL_SECONDS
    assert refusal(access, gone).kind is Kind.UNAUTHORIZED
    assert refusal(access, kept).kind is Kind.EXHAUSTED
    assert admit(access, new).key.name == "new"
    for break_it in (lambda: path.write_text("{}x"), path.unlink):
        break_it()
        clock.now += POLL_SECONDS
        with caplog.at_level(logging.ERROR):
            assert admit(access, new).key.name == "new"
    assert caplog.text.count("left as they were") == 2


def test_a_key_that_was_removed_while_the_file_could_not_be_read_stops_working(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read fails; the next one, of the same file, takes the key away. The metric says in between that it works."""

    def fail(path: Path) -> tuple[Key, ...]:
        raise OSError("stale file handle")

    clock, metrics = Clock(), Metrics()
    gone, kept = add_key(path, "gone"), add_key(path, "kept")
    access = Access(path, metrics, clock)
    remove_key(path, "gone")
    with monkeypatch.context() as patched:
        patched.setattr("cerberank_service.access.access.read_keys", fail)
        clock.now += POLL_SECONDS
        assert admit(access, gone).key.name == "gone"
    assert metrics.registry.get_sample_value("cerberank_keys_stale") == 1.0
    clock.now += POLL_SECONDS
    assert refusal(access, gone).kind is Kind.UNAUTHORIZED
    assert admit(access, kept).key.name == "kept"
    assert metrics.registry.get_sample_value("cerberank_keys_stale") == 0.0


def test_a_scrape_finds_a_key_file_that_went_bad_on_an_idle_replica(path: Path, serve: Serve) -> None:
    """No request has to come for it."""
    add_key(path, "a")
    client = serve(FakeBackend(), keys_file=path)
    path.write_text("{")
    wait_until(lambda: "cerberank_keys_stale 1.0" in client.get("/metrics").text)


def test_every_path_that_ranks_needs_the_key(serve: Serve, path: Path) -> None:
    """401 is answered before the body is read, in the path's error format; with the key a malformed body is 400."""
    secret = add_key(path, "a")
    client = serve(FakeBackend(), keys_file=path)
    for url in (*by_path(DIALECTS), "/v2/models/fake-ranker/infer"):
        refused = client.post(url, content=b"{" * 100)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer"), url
        assert "API key" in refused.text
        assert client.post(url, content=b"{", headers=as_header(secret)).status_code == 400, url


SHAPES: dict[str, Any] = {
    "/v1/rank": lambda body: body["error"]["kind"] == "exhausted",
    "/v2/rerank": lambda body: body["message"],
    "/v1/rerank": lambda body: body["message"],
    "/jina/v1/rerank": lambda body: body["detail"],
    "/voyage/v1/rerank": lambda body: body["detail"],
    "/rerank": lambda body: body["error_type"] == "Overloaded",
    "/vllm/rerank": lambda body: body["error"]["code"] == 429,
    "/score": lambda body: body["error"]["code"] == 429,
    "/v1/rank/batch": lambda body: body["error"]["kind"] == "exhausted",
    "/v1/ranking": lambda body: body["type"] == "rate_limit_error",
    "/invocations": lambda body: body["error"]["kind"] == "exhausted",
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
    (key,) = [key for key in read_keys(path) if key.name == "spent"]
    assert found[f"cerberank_key_requests_total{{key={key.id}}}"] == 1
    assert 'key="spent"' not in client.get("/metrics").text  # everybody may read it
    tokens = client.post("/v1/rank", json=BODY, headers=as_header(free)).json()["usage"]["tokens"]
    assert found[f"cerberank_key_tokens_total{{key={key.id}}}"] == tokens
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
    own = {"Access-Control-Request-Headers": f"{TIMEOUT}, {CALIBRATED}"}
    assert opened.options("/v1/rank", headers=asking | own).status_code == 200
    answer = opened.post("/v1/rank", json=BODY, headers=asking)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://search.example"
    other = opened.post("/v1/rank", json=BODY, headers={"Origin": "https://evil.example"})
    assert "Access-Control-Allow-Origin" not in other.headers


def test_an_overdraft_is_paid_back_in_time() -> None:
    """One question may cost more than a minute's worth; the next waits for as long as that takes."""
    clock = Clock()
    bucket = Bucket(600, clock)
    bucket.take(1800)
    assert bucket.wait() == 120.1
    clock.now += 1e6
    assert bucket.wait() == 0.0
    bucket.take(600)  # no more than a minute's worth was saved up
    assert bucket.wait() > 0.0


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([], None),
        ([(b"authorization", b"Bearer abc")], b"abc"),
        ([(b"authorization", b"bEARER  abc ")], b"abc"),
        ([(b"authorization", b"Bearer ")], None),
        ([(b"authorization", b"Bearerabc")], None),
        ([(b"authorization", b"Basic abc")], None),
        ([(b"x-authorization", b"Bearer abc")], None),
        ([(b"authorization", b"Bearer abc"), (b"authorization", b"Bearer abc")], None),
    ],
)
def test_exactly_one_bearer_secret_counts(headers: list[tuple[bytes, bytes]], secret: bytes | None) -> None:
    """Two headers may mean one thing to a proxy and another to us: they mean nothing."""
    assert bearer(headers) == secret
