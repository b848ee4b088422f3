from __future__ import annotations

import asyncio
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvicorn
from starlette.testclient import TestClient
from tests.service.conftest import Serve
from tests.service.fakes import FakeBackend, Faults
from tests.service.observe import engine_of, wait_until

from cerberank_service.app import create_app
from cerberank_service.serve import SWITCH_SECONDS, Server, assemble, main
from cerberank_service.service import Service
from cerberank_service.settings import Settings
from cerberank_service.settings.removed import REMOVED

BODY = {"question": "q", "candidates": ["a", "b"]}


def shut_down(client: TestClient) -> None:
    """What the server does on SIGTERM, on the app's event loop."""
    assert client.portal is not None
    client.portal.call(service_of(client).begin_shutdown)


def service_of(client: TestClient) -> Service:
    found = client.app.state.service  # type: ignore[attr-defined]
    assert isinstance(found, Service)
    return found


def test_a_wrong_setting_ends_the_program_before_it_serves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, naming the variable."""
    monkeypatch.setenv("CERBERANK_PORT", "http")
    assert main([]) == 2
    assert "CERBERANK_PORT='http'" in capsys.readouterr().err


@pytest.mark.parametrize("name", REMOVED)
def test_a_removed_setting_ends_the_program_before_it_serves(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 names the removed variable and its replacement, instead of ignoring it."""
    monkeypatch.setenv(name, "1")
    assert main([]) == 2
    assert capsys.readouterr().err == f"cerberank serve: {name} is no setting any more: {REMOVED[name]}\n"


def test_a_signal_only_ends_the_main_loop() -> None:
    """The handler may interrupt anything, so it touches no lock; a second Ctrl-C ends at once."""
    app = create_app(Settings(), lambda settings: pytest.fail("loaded"))
    server = Server(uvicorn.Config(app), app.state.service)
    with app.state.service.versions._lock:
        server.handle_exit(signal.SIGTERM, None)
    assert (server.should_exit, server.force_exit) == (True, False)
    server.handle_exit(signal.SIGTERM, None)
    assert not server.force_exit
    server.handle_exit(signal.SIGINT, None)
    assert server.force_exit


def test_a_shutdown_answers_what_came_before_and_refuses_the_rest(serve: Serve) -> None:
    """Requests in the engine and on their way to it are answered; the probe fails at once."""
    backend = FakeBackend()
    client = serve(backend)
    gate = threading.Event()
    backend.faults = Faults(gate=gate)
    backend.entered.clear()
    with ThreadPoolExecutor(4) as pool:
        try:
            accepted = [pool.submit(client.post, "/v1/rank", json=BODY) for _ in range(4)]
            assert backend.entered.wait(20)
            wait_until(lambda: sum(live.leases for live in service_of(client).versions.snapshot.live()) == 4)
            shut_down(client)
            shut_down(client)  # a second signal changes nothing
            assert client.get("/health/ready").json() == {"ready": False, "state": "stopped"}
            refused = client.post("/v1/rank", json=BODY)
        finally:
            gate.set()
        assert {future.result(20).status_code for future in accepted} == {200}
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    assert refused.json()["error"]["kind"] == "unavailable"


def test_what_is_not_done_after_the_drain_time_is_answered_with_503(serve: Serve) -> None:
    """Unanswered questions get 503 as soon as the running step is over."""
    backend = FakeBackend()
    client = serve(backend, drain_seconds=0.05)
    gate = threading.Event()
    backend.faults = Faults(gate=gate)
    backend.entered.clear()
    with ThreadPoolExecutor(3) as pool:
        try:
            waiting = [pool.submit(client.post, "/v1/rank", json=BODY) for _ in range(3)]
            assert backend.entered.wait(20)
            shut_down(client)
            engine = engine_of(client)
            wait_until(lambda: not engine.alive)
        finally:
            gate.set()
        assert {future.result(20).status_code for future in waiting} == {503}


def test_the_server_tells_the_service_before_it_waits(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise new requests on open connections would be taken while old ones drain."""
    client = serve(FakeBackend())
    service = service_of(client)
    seen: list[str] = []

    async def wait(self: uvicorn.Server, sockets: object = None) -> None:
        await asyncio.sleep(0)
        seen.append(service.versions.snapshot.state.value)

    monkeypatch.setattr(uvicorn.Server, "shutdown", wait)
    assert client.portal is not None
    client.portal.call(Server(uvicorn.Config(client.app), service).shutdown)
    assert seen == ["stopped"]


def test_threads_of_the_service_give_way_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own 5 ms would be waited for by every thread that an answer passes through."""
    said: list[float] = []
    monkeypatch.setattr("sys.setswitchinterval", said.append)
    monkeypatch.setattr("cerberank_service.serve.configure_logs", lambda settings: None)
    assemble(Settings())
    assert said == [SWITCH_SECONDS]
    assert sys.getswitchinterval() > SWITCH_SECONDS
