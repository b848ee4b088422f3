"""Connections to a service: addresses, keys and proxies, without a network."""

from __future__ import annotations

import os
import re

import httpx
import pytest

from cerberank_models.connection import bearer_of, checked_url, open_client, proxy_of

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper() in VARIABLES]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_an_empty_key_is_none(key: str | None) -> None:
    assert bearer_of(key) == {}


def test_blanks_around_a_key_are_left_out() -> None:
    """A key that was read from a file ends with a line break."""
    assert bearer_of("secret-abc\r\n") == {"Authorization": "Bearer secret-abc"}


@pytest.mark.parametrize("key", ["secret\nabc", "geheimer schlüssel", "secret\0"])
def test_a_key_that_no_header_holds_is_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="the key holds a character") as raised:
        open_client("http://127.0.0.1", api_key=key)
    assert "secret" not in str(raised.value)
    assert "schl" not in str(raised.value)


def test_what_is_not_a_text_is_refused_by_its_type() -> None:
    """Only the type of a key is shown."""
    for key in (b"secret", 7, ["secret"]):
        with pytest.raises(ValueError, match=f"^the key must be a text, not {type(key).__name__}$"):
            open_client("http://127.0.0.1", api_key=key)
    for url in (None, b"http://127.0.0.1"):
        with pytest.raises(ValueError, match=f"^the URL of a service must be a text, not {type(url).__name__}$"):
            open_client(url)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "", "http://", "ftp://host", "http://host:x", "http://[::1", "//host"]
)
def test_what_is_not_a_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="it must be http://HOST:PORT"):
        open_client(url)


def test_blanks_around_a_url_are_left_out() -> None:
    """A URL that was read from a file ends with a line break."""
    with open_client(" http://127.0.0.1:8000/\n") as client:
        assert client.base_url == "http://127.0.0.1:8000"


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(ValueError, match=r"^'host:8000' is not") as raised:
        checked_url("user:password@host:8000")
    assert "password" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://127.0.0.1:8000", None),
        ("http://localhost:8000", None),
        ("http://[::1]:8000", None),
        ("http://exempt.example:8000", None),
        ("http://[fd00::1]:8000", None),
        ("http://port.example:8000", None),
        ("http://port.example", "http://plain:3128"),
        ("https://usual.example", None),
        ("http://scheme.example:8000", None),
        ("https://scheme.example", "http://secure:3128"),
        ("http://other.example", "http://plain:3128"),
        ("https://other.example", "http://secure:3128"),
    ],
)
def test_an_exempt_address_needs_no_proxy(url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does this machine; a proxy may be named without a scheme."""
    monkeypatch.setenv("http_proxy", "http://plain:3128")
    monkeypatch.setenv("HTTPS_PROXY", "secure:3128")
    monkeypatch.setenv("NO_PROXY", "exempt.example,[fd00::1],port.example:8000,usual.example:443,http://scheme.example")
    assert proxy_of(url) == proxy


@pytest.mark.parametrize("proxy", ["socks4://user:password@proxy:1", "http://proxy:x"])
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line without a password. An address that needs no proxy is connected to."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "localhost,[::1]")
    with pytest.raises(ValueError, match=r"^the proxy of ALL_PROXY, NO_PROXY cannot be used: ") as raised:
        open_client("http://other.example")
    assert not re.search("password|\n", str(raised.value))
    open_client("http://127.0.0.1").close()


def test_socks_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(**_: object) -> httpx.HTTPTransport:
        raise ImportError("Using SOCKS proxy, but the 'socksio' package is not installed.")

    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    monkeypatch.setattr(httpx, "HTTPTransport", lacking)
    with pytest.raises(ValueError, match="ALL_PROXY cannot be used: SOCKS needs the package socksio"):
        open_client("http://other.example")
