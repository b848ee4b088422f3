"""`admin probe`: asks the service on this machine whether it is alive or ready, for health checks of containers.

This module reads the service's address from its environment variables, without `Settings`, and imports no other module
of the service. A health check runs every few seconds: it must not take most of a second of processor time for imports,
and must not fail because of an unrelated setting.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Literal

from cerberank_models.output import note, say


class ProbeError(RuntimeError):
    """The service does not answer."""


def probe(kind: Literal["ready", "live"] = "ready", /, *, timeout: float = 2.0) -> int:
    """Check whether the service on this machine is ready or alive.

    The command finds the service by CERBERANK_HOST, CERBERANK_PORT and CERBERANK_TLS_CERTIFICATE, which must have the
    values that the service was started with. The exit code is 1 unless the service answers 200.

    Args:
        kind: Readiness or liveness.
        timeout: Seconds to wait for the answer.
    """
    address = own_address("CERBERANK_")
    place = f"{address.url}/health/{kind}"
    try:
        status, content = _ask(address, f"/health/{kind}", timeout)
    except (OSError, HTTPException) as error:
        raise ProbeError(f"{place}: {error}") from error
    (say if status == HTTPStatus.OK else note)(f"{place}: {status} {content}")
    return 0 if status == HTTPStatus.OK else 1


def _ask(address: Address, path: str, seconds: float) -> tuple[int, str]:
    """The status and the body of the answer. Raises OSError or HTTPException."""
    if address.certificate is None:
        connection = HTTPConnection(address.host, address.port, timeout=seconds)
    else:
        connection = HTTPSConnection(address.host, address.port, timeout=seconds, context=_unverified())
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def _unverified() -> ssl.SSLContext:
    """A context that does not verify certificates, like a kubelet's probes.

    Nothing secret is sent, and a renewed certificate must not cause a restart.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


DEFAULT_PORTS = {"CERBERANK_": 8000, "CERBERANK_ADMIN_": 8001}
"""The public port and the admin port, by the prefix of their variable `PORT`."""
LOCAL = "127.0.0.1"
EVERYWHERE = {"", "0.0.0.0", "::"}
"""Addresses that a server can listen on, but that a client cannot connect to."""
CERTIFICATE_END = "-----END CERTIFICATE-----\n"


class NoAddressError(ValueError):
    """The environment does not say where the service listens; the message names the variable."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address of the service."""

    host: str
    port: int
    certificate: Path | None
    """The file with the service's certificate chain; None if the service does not use TLS."""

    @property
    def url(self) -> str:
        """The address as a URL, such as `https://127.0.0.1:8000`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


def own_address(prefix: Literal["CERBERANK_", "CERBERANK_ADMIN_"]) -> Address:
    """The address of the public or the admin port. Raises NoAddressError for a port that is 0 or not a number."""
    variables = {name.upper(): value for name, value in os.environ.items() if value}
    name = prefix + "PORT"
    try:
        port = int(variables.get(name, DEFAULT_PORTS[prefix]))
    except ValueError:
        port = 0
    if not 0 < port < 65536:
        raise NoAddressError(f"{name}={variables[name]} is not a port that can be asked")
    host = variables.get("CERBERANK_HOST", LOCAL) if prefix == "CERBERANK_" else LOCAL
    certificate = variables.get("CERBERANK_TLS_CERTIFICATE")
    return Address(_local(host), port, Path(certificate) if certificate else None)


def pinned(certificate: Path) -> ssl.SSLContext:
    """A context that trusts only the first certificate of a PEM file, and does not check the host name.

    The certificate is made for the name that clients use, which differs from the address within the machine. Raises
    OSError, whose message names the file, if it cannot be read or has no certificate.
    """
    try:
        first, end, _ = certificate.read_text(encoding="ascii").partition(CERTIFICATE_END)
        context = ssl.create_default_context(cadata=first + end)
    except OSError as error:
        raise OSError(f"{certificate}: {error.strerror or error}") from error
    except ValueError as error:
        raise OSError(f"{certificate}: {error}") from error
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def _local(host: str) -> str:
    if host in EVERYWHERE:
        return "::1" if host == "::" else LOCAL
    return host
