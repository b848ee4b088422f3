"""An app that follows a store, seen from outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient
from tests.service.observe import service_of, wait_until

BODY: dict[str, Any] = {"question": "how tall?", "candidates": ["a", "b", "c"]}
Follow = Callable[..., TestClient]


def entry(client: TestClient, version: str, model: str = "fake-ranker") -> dict[str, Any]:
    """The entry of a version in `/v1/models`; empty when there is none."""
    found = client.get("/v1/models").json()["models"]
    return next((e for e in found if e.get("version") == version and e.get("model") == model), {})


def served_by(client: TestClient, **fields: object) -> str:
    """The version that answers, or the status of a refusal."""
    answer = client.post("/v1/rank", json=BODY | fields)
    return str(answer.json()["version"]) if answer.status_code == 200 else f"status {answer.status_code}"


def wait_for_a_poll(client: TestClient) -> None:
    """Until a poll of the store that began after the call has ended: the second one that ends after it."""
    source = service_of(client).source
    assert source is not None
    for _ in range(2):
        begin = time.monotonic()
        wait_until(lambda begin=begin: source.poll_age < time.monotonic() - begin)  # type: ignore[misc]
