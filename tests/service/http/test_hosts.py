from __future__ import annotations

import pytest
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend

from cerberank_service.http.hosts import ANY_HOST

BODY = {"question": "q", "candidates": ["a", "b"]}
HOSTS = "rank.example, *.inner.example, [::1], 127.0.0.1"


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
def test_only_the_service_s_own_names_are_answered(serve: Serve, host: str, status: int) -> None:
    """With a port or without; the refusal is in the format of the path, also of a page and of an unknown path."""
    client = serve(FakeBackend(), allowed_hosts=HOSTS)
    assert client.post("/v1/rank", json=BODY, headers={"Host": host}).status_code == status
    assert client.get("/", headers={"Host": host}).status_code == status
    told = client.post("/v2/models/fake-ranker/infer", json={}, headers={"Host": host})
    assert list(told.json()) == ["error"]
    if status == 400:
        unknown = client.get("/v1/nothing", headers={"Host": host})
        assert unknown.json()["error"]["kind"] == "malformed"
        assert "CERBERANK_ALLOWED_HOSTS" in unknown.json()["error"]["message"]


def test_probes_and_metrics_are_answered_for_any_host(serve: Serve) -> None:
    """Kubernetes, load balancers and Prometheus ask by address. The list of paths has no other one."""
    client = serve(FakeBackend(), allowed_hosts=HOSTS)
    for path in ANY_HOST:
        assert client.get(path, headers={"Host": "10.0.0.7"}).status_code == 200, path
    for path in ("/v1/models", "/info", "/status", "/openapi.json", "/v2"):
        assert client.get(path, headers={"Host": "10.0.0.7"}).status_code == 400, path


def test_every_host_is_answered_by_default(serve: Serve) -> None:
    """A service without names has none to compare with."""
    assert serve(FakeBackend()).post("/v1/rank", json=BODY, headers={"Host": "any.example"}).status_code == 200
