"""The parts of the token cache that requests share, and those that it keeps apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.following import Follow, served_by
from tests.service.observe import samples, wait_until
from tests.service.pushes import push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.access.key_file import add_key

BODY: dict[str, Any] = {"question": "how tall?", "candidates": ["a", "b", "c"]}
TEXTS = 4


def lookups(client: TestClient) -> tuple[int, int]:
    """Hits and misses of the token cache."""
    series = samples(client)
    return tuple(int(series[f"cerberank_token_cache_{name}_total{{}}"]) for name in ("hits", "misses"))  # type: ignore[return-value]


def rank(client: TestClient, secret: str = "") -> Any:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return client.post("/v1/rank", json=BODY, headers=headers).raise_for_status().json()["results"]


def test_a_repeated_request_is_not_tokenised(serve: Serve) -> None:
    """Question and candidates are hits, and the answer is the same as without the cache."""
    client = serve(FakeBackend())
    first = rank(client)
    assert lookups(client) == (0, TEXTS)
    assert rank(client) == first
    assert lookups(client) == (TEXTS, TEXTS)
    assert samples(client)["cerberank_token_cache_bytes{}"] > 0
    plain = serve(FakeBackend(), token_cache_bytes=0)
    assert rank(plain) == rank(plain) == first
    assert lookups(plain) == (0, 0)


def test_keys_share_no_tokens(serve: Serve, tmp_path: Path) -> None:
    """Texts that one key sent are unknown to another one, and known when the first sends them again."""
    path = tmp_path / "keys.json"
    first, second = add_key(path, "first"), add_key(path, "second")
    client = serve(FakeBackend(), keys_file=path)
    seen = []
    for secret in (first, second, first, second):
        rank(client, secret)
        seen.append(lookups(client))
    assert seen == [(0, TEXTS), (0, 2 * TEXTS), (TEXTS, 2 * TEXTS), (2 * TEXTS, 2 * TEXTS)]


def test_a_version_with_the_same_tokenizer_finds_the_cache_warm(
    follow: Follow, store: FolderStore, made: Callable[..., Checkpoint]
) -> None:
    """A label that moves to a version with the same tokenizer and lengths costs no text its tokens."""
    client = follow()
    push(store, made("1"), "stable")
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    rank(client)
    push(store, made("2"), "stable")
    wait_until(lambda: served_by(client) == "2")
    assert lookups(client)[1] == TEXTS
