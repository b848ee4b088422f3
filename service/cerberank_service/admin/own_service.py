"""Where the service of this machine listens, by the variables that it was started with too, and how to trust it.

They are read here and not by `Settings`, which takes most of a second of a processor: a health check runs every few
seconds, and must not fail for a setting that has nothing to do with it.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

DEFAULT_PORTS = {"CERBERANK_": 8000, "CERBERANK_ADMIN_": 8001}
"""By the prefix of the variables `HOST` and `PORT`: the public port's and the admin port's."""
EVERYWHERE = {"", "0.0.0.0", "::"}
"""Addresses to listen on that nobody can connect to."""
CERTIFICATE_END = "-----END CERTIFICATE-----\n"


class NoAddressError(ValueError):
    """The variables do not say where the service listens; the message names the one that does not."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address of the service."""

    host: str
    port: int
    certificate: Path | None
    """The file with the service's certificate chain, where it speaks TLS."""

    @property
    def url(self) -> str:
        """Such as `https://127.0.0.1:8000`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.certificate is None else 'https'}://{host}:{self.port}"


def own_address(prefix: Literal["CERBERANK_", "CERBERANK_ADMIN_"]) -> Address:
    """The public or the admin port's address. Raises NoAddressError for a port that is 0 or no number."""
    given = {name.upper(): value for name, value in os.environ.items() if value}
    name = prefix + "PORT"
    try:
        port = int(given.get(name, DEFAULT_PORTS[prefix]))
    except ValueError:
        port = 0
    if not 0 < port < 65536:
        raise NoAddressError(f"{name}={given[name]} is no port that can be asked")
    host = given.get(prefix + "HOST", "127.0.0.1")
    certificate = given.get("CERBERANK_TLS_CERTIFICATE")
    return Address(_local(host), port, Path(certificate) if certificate else None)


def pinned(certificate: Path) -> ssl.SSLContext:
    """Trust the owner of this certificate alone, the first one of a PEM file, under whatever name it is asked.

    A certificate is made for the name that clients use, which is not the address within the machine. Raises OSError,
    whose message names the file, for one that cannot be read or has no certificate.
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
        return "::1" if host == "::" else "127.0.0.1"
    return host
