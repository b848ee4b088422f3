"""Connections to a service: its address, the key, and the proxy that the environment names."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from cerberank_models import __version__

USUAL_PORTS = {"http": 80, "https": 443}
Transport = TypeVar("Transport")


def open_client(
    url: str,
    *,
    api_key: str | None = None,
    timeout: float | None = None,
    verify: ssl.SSLContext | bool = True,
    transport: httpx.BaseTransport | None = None,
) -> httpx.Client:
    """A client of the service at `url`. Raises ValueError for an invalid URL, key or proxy."""
    settings = _settings(url, api_key)
    transport = transport or _transport(httpx.HTTPTransport, settings["base_url"], verify)
    return httpx.Client(**settings, timeout=timeout, transport=transport)


def open_async_client(
    url: str,
    *,
    api_key: str | None = None,
    verify: ssl.SSLContext | bool = True,
    transport: httpx.AsyncBaseTransport | None = None,
) -> httpx.AsyncClient:
    """A client for asyncio. Raises ValueError for an invalid URL, key or proxy."""
    settings = _settings(url, api_key)
    transport = transport or _transport(httpx.AsyncHTTPTransport, settings["base_url"], verify)
    return httpx.AsyncClient(**settings, timeout=None, transport=transport)


def checked_url(url: str) -> str:
    """The address of a service, without blanks around it and a slash at its end.

    Raises ValueError unless it is an http or https URL.
    """
    if not isinstance(url, str):
        raise ValueError(f"the URL of a service must be a text, not {type(url).__name__}")
    url = url.strip()
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or half of the brackets of IPv6
        valid = False
    if not valid:
        shown = url.rpartition("@")[2]  # without a password
        raise ValueError(f"{shown!r} is not the URL of a service: it must be http://HOST:PORT or https://HOST:PORT")
    return url.rstrip("/")


def bearer_of(key: str | None) -> dict[str, str]:
    """The header that holds a key, without blanks around the key; none for an empty key.

    Raises ValueError, which does not show the key, for what is not a text, and for a character that a header cannot
    hold.
    """
    if not isinstance(key, str | None):
        raise ValueError(f"the key must be a text, not {type(key).__name__}")
    secret = (key or "").strip()
    if not (secret.isascii() and secret.isprintable()):
        raise ValueError("the key holds a character outside of printable ASCII: is it the whole key, and nothing else?")
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def _settings(url: str, api_key: str | None) -> dict[str, Any]:
    """The address of a client, and the headers of every request: this program's name, and the key if there is one."""
    return {"base_url": checked_url(url), "headers": {"User-Agent": f"cerberank/{__version__}"} | bearer_of(api_key)}


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for `url`; None for an exempt address and for this machine itself."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or USUAL_PORTS.get(parts.scheme)
    # NO_PROXY may name a host with its port or its scheme.
    hosts = (host, f"[{host}]")
    forms = [form for name in hosts for form in (name, f"{name}:{port}", f"{parts.scheme}://{name}")]
    if _is_loopback(host) or any(map(proxy_bypass, forms)):
        return None
    named = getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def proxy_problem(error: Exception) -> str:
    """One line on a proxy that cannot be used, with the variables that may name it; without its password."""
    variables = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
    names = ", ".join(name for name in os.environ if name.upper() in variables) or "the system's settings"
    reason = "SOCKS needs the package socksio" if isinstance(error, ImportError) else "an address is not valid"
    return f"the proxy of {names} cannot be used: {reason}; correct it, or name the host in NO_PROXY"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _transport(kind: Callable[..., Transport], url: str, verify: ssl.SSLContext | bool) -> Transport:
    """A transport to `url` by the proxy of the environment; httpx would refuse a proxy of other addresses, too."""
    if (proxy := proxy_of(url)) is None:
        return kind(verify=verify)
    try:
        return kind(verify=verify, proxy=proxy)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        raise ValueError(proxy_problem(error)) from error
