from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend
from tests.service.following import Follow, entry, served_by
from tests.service.observe import service_of, wait_until
from tests.service.pushes import push

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.admin import create_admin
from cerberank_service.app import create_app
from cerberank_service.settings import Settings

TOKEN = "a-token-of-the-tests"
VERSION = "/v1/models/fake-ranker/versions/{}"
LABEL = "/v1/models/fake-ranker/labels/{}"


def admin_app(public: TestClient) -> FastAPI:
    return create_admin(service_of(public))


def admin_of(public: TestClient, token: str | None = TOKEN) -> TestClient:
    """A client of the admin app on the same service; the public app runs it."""
    app = admin_app(public)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return TestClient(app, headers=headers, raise_server_exceptions=False)


@pytest.fixture
def public(follow: Follow, store: FolderStore, made: Callable[..., Checkpoint]) -> TestClient:
    """An app that serves version 1 as stable of a store that has 1, 2 and 3."""
    push(store, made("1"), "stable")
    push(store, made("2"))
    push(store, made("3"))
    client = follow(admin_token=TOKEN)
    wait_until(lambda: client.get("/health/ready").status_code == 200)
    return client


@pytest.fixture
def admin(public: TestClient) -> TestClient:
    return admin_of(public)


def test_without_a_token_there_is_no_admin_app(serve: Serve) -> None:
    """Neither by accident: the app cannot be made."""
    client = serve(FakeBackend())
    with pytest.raises(ValueError, match="needs a token"):
        admin_app(client)


WITHOUT_THE_TOKEN: list[Any] = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": TOKEN},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN.upper()}"},
    {"Cookie": f"Authorization=Bearer {TOKEN}"},
    [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")],
]


def test_nothing_answers_without_the_token(public: TestClient) -> None:
    """No route, no schema, no unknown path: 401 alike, and nothing happens."""
    client = admin_of(public, token=None)
    paths = [(method, route.path) for route in client.app.routes for method in route.methods]  # type: ignore[attr-defined]
    assert ("POST", "/v1/drain") in paths
    paths += [("GET", "/nothing"), ("OPTIONS", "/v1/models"), ("GET", "/v1/models?token=" + TOKEN)]
    for (method, path), headers in product(paths, WITHOUT_THE_TOKEN):
        refused = client.request(method, path, headers=headers, json={"version": "2"})
        assert (refused.status_code, refused.headers.get("WWW-Authenticate")) == (401, "Bearer"), (path, headers)
        assert method == "HEAD" or refused.json()["error"]["kind"] == "unauthorized"
    assert public.get("/health/ready").json()["state"] == "ready"


def test_the_public_port_has_no_admin_route(public: TestClient) -> None:
    """Admin routes are 404 on the public port, even with the token; 405 below the list of models, which is public."""
    app = admin_app(public)
    routes = [(m, r.path) for r in app.routes for m in r.methods if m not in {"GET", "HEAD"}]  # type: ignore[attr-defined]
    assert len(routes) == 8
    for method, path in routes:
        filled = path.format(model="fake-ranker", version="2", label="stable")
        answer = public.request(method, filled, headers={"Authorization": f"Bearer {TOKEN}"}, json={"version": "2"})
        assert answer.status_code == (405 if path.startswith("/v1/models/") else 404), path
    assert served_by(public) == "1"


def test_head_is_answered_and_a_slash_too_much_is_not_redirected(admin: TestClient) -> None:
    """As on the public port."""
    head = admin.head("/v1/models")
    assert (head.status_code, head.content) == (200, b"")
    assert admin.get("/v1/models/", follow_redirects=False).status_code == 404


def test_list_shows_what_serves_and_what_the_store_has(admin: TestClient) -> None:
    """Version 2 is not loaded, and yet there."""
    listed = admin.get("/v1/models").json()
    assert listed["state"] == "ready"
    assert [(e["version"], e["labels"]) for e in listed["models"]] == [("1", ["stable"])]
    assert listed["store"] == {"fake-ranker": {"versions": ["1", "2", "3"], "labels": {"stable": "1"}}}


def test_list_works_without_the_store(admin: TestClient, tmp_path: Path) -> None:
    """The loaded versions come from memory; the reason that the store cannot be read stands beside them."""
    (tmp_path / "store").rename(tmp_path / "away")
    listed = admin.get("/v1/models").json()
    assert [(e["version"], e["labels"]) for e in listed["models"]] == [("1", ["stable"])]
    assert listed["store"] is None
    assert listed["store_error"].startswith("the store cannot be read: ")
    assert str(tmp_path / "store") in listed["store_error"]
    for refused in (
        admin.post("/v1/models/fake-ranker/rollback"),
        admin.put(LABEL.format("canary"), json={"version": "2"}),
    ):
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, listed["store_error"])


def test_a_version_is_loaded_and_unloaded_by_hand(public: TestClient, admin: TestClient) -> None:
    """It can be asked by its name meanwhile; the label did not move."""
    assert admin.post(VERSION.format("2") + "/load").status_code == 202
    wait_until(lambda: entry(public, "2").get("state") == "ready")
    assert entry(public, "2")["pinned"]
    assert served_by(public, model="fake-ranker@2") == "2"
    assert served_by(public) == "1"
    assert admin.post(VERSION.format("2") + "/unload").status_code == 202
    wait_until(lambda: entry(public, "2") == {})


def test_what_serves_cannot_be_unloaded(public: TestClient, admin: TestClient) -> None:
    """409 names the label; what is not loaded is 404, and so is what is not in the store."""
    refused = admin.post(VERSION.format("1") + "/unload")
    assert (refused.status_code, refused.json()["error"]["kind"]) == (409, "conflict")
    assert "stable" in refused.json()["error"]["message"]
    assert admin.post(VERSION.format("2") + "/unload").status_code == 404
    assert admin.post("/v1/models/other/versions/1/unload").status_code == 404
    assert admin.post(VERSION.format("9") + "/load").status_code == 404
    assert served_by(public) == "1"


def test_a_label_moves_and_is_rolled_back(public: TestClient, admin: TestClient, store: FolderStore) -> None:
    """The label moves in the store, so that other replicas follow."""
    moved = admin.put(LABEL.format("stable"), json={"version": "2"}).json()
    assert moved == {"model": "fake-ranker", "label": "stable", "before": "1", "version": "2"}
    wait_until(lambda: served_by(public) == "2")
    rolled = admin.post("/v1/models/fake-ranker/rollback").json()
    assert (rolled["before"], rolled["version"]) == ("2", "1")
    wait_until(lambda: served_by(public) == "1")
    assert store.labels("fake-ranker") == {"stable": "1"}
    again = admin.post("/v1/models/fake-ranker/rollback")
    assert (again.status_code, served_by(public)) == (409, "1"), "it would return to what the rollback has left"
    assert "cerberank admin label fake-ranker stable VERSION" in again.json()["error"]["message"]
    admin.put(LABEL.format("shadow"), json={"version": "3"}).raise_for_status()
    assert admin.delete(LABEL.format("shadow")).json()["version"] is None
    assert store.labels("fake-ranker") == {"stable": "1"}


@pytest.fixture
def rejected(public: TestClient, admin: TestClient, store: FolderStore, made: Callable[..., Checkpoint]) -> None:
    """The stable label stands for version 4, which is rejected; version 2 serves, and before it 1 did."""
    admin.put(LABEL.format("stable"), json={"version": "2"}).raise_for_status()
    wait_until(lambda: entry(public, "1").get("rollback"))
    push(store, made("4", golden_shift=0.5), "stable")
    wait_until(lambda: entry(public, "4").get("state") == "failed")


@pytest.mark.usefixtures("rejected")
def test_a_rollback_of_a_rejected_push_moves_the_label_to_what_serves(
    public: TestClient, admin: TestClient, store: FolderStore
) -> None:
    """Not to the version before that one: it is the rejected push that is taken back, and only once."""
    rolled = admin.post("/v1/models/fake-ranker/rollback").json()
    assert (rolled["before"], rolled["version"]) == ("4", "2")
    assert (served_by(public), store.labels("fake-ranker")) == ("2", {"stable": "2"})


@pytest.mark.usefixtures("rejected")
def test_a_rollback_looks_at_the_label_as_it_is_now(public: TestClient, admin: TestClient, store: FolderStore) -> None:
    """Not as the last poll has seen it: the rejected push was already taken back by another hand."""
    source = service_of(public).source
    source.stop()  # no further poll
    store.move_label("fake-ranker", "stable", "2")
    rolled = admin.post("/v1/models/fake-ranker/rollback").json()
    assert (rolled["before"], rolled["version"]) == ("2", "1")
    assert store.labels("fake-ranker") == {"stable": "1"}


def test_a_label_that_was_moved_meanwhile_is_not_moved_again(
    public: TestClient, admin: TestClient, store: FolderStore
) -> None:
    """With the version that the operator expects: 409, and the label stays."""
    moved = admin.put(LABEL.format("stable"), json={"version": "3", "only_from": "2"})
    assert moved.status_code == 409
    assert store.labels("fake-ranker") == {"stable": "1"}
    admin.put(LABEL.format("stable"), json={"version": "3", "only_from": "1"}).raise_for_status()
    assert store.labels("fake-ranker") == {"stable": "3"}


def test_the_version_to_go_back_to_can_be_given_up(public: TestClient, admin: TestClient) -> None:
    """Its memory comes back; a rollback is refused afterwards."""
    admin.put(LABEL.format("stable"), json={"version": "2"}).raise_for_status()
    wait_until(lambda: entry(public, "1").get("rollback"))
    admin.post(VERSION.format("1") + "/unload").raise_for_status()
    wait_until(lambda: entry(public, "1") == {})
    assert admin.post("/v1/models/fake-ranker/rollback").status_code == 409


def test_a_drained_replica_is_not_ready_and_comes_back(public: TestClient, admin: TestClient) -> None:
    """503 with a time to come back, so that others are asked."""
    assert admin.post("/v1/drain").json() == {"state": "draining"}
    assert public.get("/health/ready").status_code == 503
    refused = public.post("/v1/rank", json={"question": "q", "candidates": ["a"]})
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    schedule = {"drop_schedule": 0.5}
    assert admin.put(VERSION.format("1") + "/drop-schedule", json=schedule).status_code == 200
    assert admin.post("/v1/resume").json() == {"state": "ready"}
    assert served_by(public) == "1"


def test_the_drop_schedule_is_set_for_calls_that_choose_none(public: TestClient, admin: TestClient) -> None:
    """The version may be given by a label; a call's own ratio takes precedence; 0 and null set none."""
    body = {"question": "q", "candidates": ["a", "b"]}
    used: list[tuple[Any, list[float]]] = [(0.25, [0.25, 0.25]), ([0.1, 0.5], [0.1, 0.5])]
    for no_drop in (0, None):
        for given, ratios in (*used, (no_drop, [0.0, 0.0])):
            admin.put(VERSION.format("stable") + "/drop-schedule", json={"drop_schedule": given}).raise_for_status()
            assert public.post("/v1/rank", json=body).json()["drop_schedule"] == ratios
            assert public.post("/v1/rank", json=body | {"drop_ratio": 0.9}).json()["drop_schedule"] == [0.9, 0.9]
    change = {"drop_schedule": 0, "lexical_ratio": 0.5}
    admin.put(VERSION.format("stable") + "/drop-schedule", json=change).raise_for_status()
    assert public.post("/v1/rank", json=body).json()["lexical_ratio"] == 0.5


def test_what_does_not_fit_is_refused_in_the_one_body(public: TestClient, admin: TestClient) -> None:
    """422 or 409, and nothing has changed."""
    wrong: list[tuple[str, str, Any]] = [
        ("PUT", VERSION.format("1") + "/drop-schedule", {"drop_schedule": [0.1]}),
        ("PUT", VERSION.format("1") + "/drop-schedule", {"drop_schedule": 1.0}),
        ("PUT", VERSION.format("1") + "/drop-schedule", {}),
        ("PUT", VERSION.format("1") + "/drop-schedule", {"drop_schedule": None, "lexical_ratio": 0.5}),
        ("PUT", LABEL.format("stable"), {"version": "../../etc"}),
        ("PUT", LABEL.format("stable"), {"version": "stable"}),
        ("PUT", LABEL.format("stable"), {"version": "2", "other": 1}),
        ("PUT", LABEL.format("latest"), {"version": "2"}),
        ("PUT", "/v1/models/.hidden/labels/stable", {"version": "2"}),
        ("POST", "/v1/models/..%5C..%5Cetc/versions/1/load", None),
        ("POST", "/v1/models/fake-ranker/versions/.1.partial/load", None),
        ("POST", "/v1/models/fake-ranker/versions/1%0A/load", None),
    ]
    for method, path, body in wrong:
        refused = admin.request(method, path, json=body)
        assert refused.status_code in {409, 422}, (path, body, refused.text)
        assert set(refused.json()["error"]) == {"kind", "message", "request_id"}
        assert served_by(public) == "1"


def test_verbs_that_need_a_store_say_so(serve: Serve) -> None:
    """A service of one checkpoint refuses them with 409; the drop schedule and draining work."""
    admin = admin_of(serve(FakeBackend(), admin_token=TOKEN))
    assert admin.post("/v1/models/fake-ranker/versions/7/load").status_code == 409
    assert admin.post("/v1/models/fake-ranker/rollback").status_code == 409
    assert admin.put(LABEL.format("stable"), json={"version": "2"}).status_code == 409
    assert admin.put(VERSION.format("7") + "/drop-schedule", json={"drop_schedule": 0.5}).status_code == 200
    listed = admin.get("/v1/models").json()
    assert (listed["store"], listed["models"][0]["drop_schedule"]) == (None, [0.5, 0.5])


def test_the_token_is_in_no_message(no_settings: None, public: TestClient, admin: TestClient) -> None:
    """Neither in what settings show of themselves nor in the schema."""
    assert TOKEN not in repr(Settings(admin_token=TOKEN))  # type: ignore[arg-type]
    assert TOKEN not in admin.get("/openapi.json").text
    assert TOKEN not in str(create_app(Settings()).openapi())
