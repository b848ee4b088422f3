"""`server probe`: asks the service of this machine whether it lives or is ready, for health checks of containers."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Literal

from cerberank_models.output import note, say
from cerberank_service.admin.own_service import Address, own_address


class ProbeError(RuntimeError):
    """The service does not answer."""


def probe(kind: Literal["ready", "live"] = "ready", /, *, timeout: float = 2.0) -> int:
    """Ask the service of this machine whether it is ready, or whether it lives.

    It is found by the CERBERANK_HOST, CERBERANK_PORT and CERBERANK_TLS_CERTIFICATE that it was started with. The exit
    code is 1 unless it answers 200.

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
    """As a kubelet's probes do: nothing secret is sent, and a certificate that is renewed is no reason to restart."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
