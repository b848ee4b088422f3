"""`cerberank admin probe` against real processes, one with TLS and one without."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cerberank.cli import main
from tests.service.observe import wait_until
from tools.process import Process, start

from cerberank_service.commands.probe import DEFAULT_PORTS, Address, NoAddressError, own_address, pinned
from cerberank_service.settings import Settings

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """The variables of the service; its certificate is for another name than 127.0.0.1, and its authority unknown."""
    made = trustme.CA().issue_cert("rank.example.org")
    made.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    return {"CERBERANK_TLS_CERTIFICATE": f"{tmp_path}/chain.pem", "CERBERANK_TLS_KEY": f"{tmp_path}/key.pem"}


@pytest.fixture
def service(
    tiny_checkpoint: Path, tmp_path: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Process]:
    """A process whose port and TLS settings are this process's variables too."""
    running = start(tiny_checkpoint, tmp_path / "log", **settings)
    monkeypatch.setenv("CERBERANK_PORT", running.url.rpartition(":")[2])
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_a_probe_follows_port_and_tls_and_tells_the_state(service: Process, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 once it is ready, 1 and the address when nobody answers."""
    wait_until(lambda: main(["admin", "probe"]) == 0, seconds=60)
    assert main(["admin", "probe", "live"]) == 0
    assert f"{service.url}/health/live: 200" in capsys.readouterr().out
    service.process.kill()
    service.process.wait()
    assert main(["admin", "probe", "live"]) == 1
    assert capsys.readouterr().err.startswith(f"cerberank admin probe: {service.url}/health/live: ")


def test_a_service_that_loads_lives_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 with the answer's own words."""
    running = start(tmp_path / "unused", tmp_path / "log", CERBERANK_STORE=str(tmp_path / "no-store"))
    try:
        monkeypatch.setenv("CERBERANK_PORT", running.url.rpartition(":")[2])
        assert main(["admin", "probe", "live"]) == 0
        wait_until(
            lambda: main(["admin", "probe", "ready"]) == 1 and "the store does not exist" in capsys.readouterr().err
        )
    finally:
        running.process.kill()
        running.process.wait()


def test_one_who_accepts_and_says_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the time-out, with exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("CERBERANK_PORT", str(silent.getsockname()[1]))
        assert main(["admin", "probe", "--timeout", "0.1"]) == 1
    assert "timed out" in capsys.readouterr().err


def test_without_variables_the_addresses_are_the_service_s_defaults() -> None:
    """Ports and addresses of `Settings`, for both ports."""
    fields = Settings.model_fields
    assert list(DEFAULT_PORTS.values()) == [fields["port"].default, fields["admin_port"].default]
    assert own_address("CERBERANK_") == Address("127.0.0.1", 8000, None)
    assert own_address("CERBERANK_ADMIN_") == Address("127.0.0.1", 8001, None)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:8220"),
        ("0.0.0.0", "http://127.0.0.1:8220"),
        ("::", "http://[::1]:8220"),
        ("::1", "http://[::1]:8220"),
        ("10.0.0.7", "http://10.0.0.7:8220"),
    ],
)
def test_an_address_to_listen_on_becomes_one_to_ask(host: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can connect to the address that means all of them."""
    monkeypatch.setenv("CERBERANK_HOST", host)
    monkeypatch.setenv("CERBERANK_PORT", "8220")
    assert own_address("CERBERANK_").url == url


@pytest.mark.parametrize("port", ["0", "many", "70000"])
def test_a_port_that_cannot_be_asked_is_named(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 0 is a free one, which only the service knows."""
    monkeypatch.setenv("CERBERANK_ADMIN_PORT", port)
    with pytest.raises(NoAddressError, match=re.escape(f"CERBERANK_ADMIN_PORT={port} is not a port")):
        own_address("CERBERANK_ADMIN_")


@pytest.mark.parametrize("same", [True, False])
def test_only_the_owner_of_the_certificate_is_trusted(same: bool, tmp_path: Path) -> None:
    """Under another name than the certificate's; not another certificate of the same authority and name."""
    authority = trustme.CA()
    own, other = (authority.issue_cert("rank.example.org") for _ in range(2))
    chain = tmp_path / "chain.pem"
    for blob in [*own.cert_chain_pems, authority.cert_pem]:
        blob.write_to_path(chain, append=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (own if same else other).configure_cert(server)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, args=(listening, server))
        thread.start()
        with socket.create_connection(listening.getsockname()) as raw:
            if same:
                pinned(chain).wrap_socket(raw, server_hostname="127.0.0.1").close()
            else:
                with pytest.raises(ssl.SSLCertVerificationError):
                    pinned(chain).wrap_socket(raw, server_hostname="127.0.0.1")
        thread.join()


def accept(listening: socket.socket, context: ssl.SSLContext) -> None:
    raw, _ = listening.accept()
    with raw, suppress(OSError):  # the client may refuse
        context.wrap_socket(raw, server_side=True).close()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_named(content: str | None, tmp_path: Path) -> None:
    """The message names the file, which Python's own does not."""
    file = tmp_path / "tls.crt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(OSError, match=re.escape(str(file))):
        pinned(file)
