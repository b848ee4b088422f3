"""`cerberank probe`: asks the service of this machine whether it lives or is ready, for health checks of containers."""

from __future__ import annotations

import argparse
import ssl
import sys
from http.client import HTTPConnection, HTTPException, HTTPSConnection

from cerberank_service.admin.own_service import Address, NoAddressError, own_address


def main(argv: list[str]) -> int:
    """Run the verb; returns 0 if the answer is 200, else 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="cerberank probe",
        description="Ask the service that was started with the same CERBERANK_HOST, CERBERANK_PORT and "
        "CERBERANK_TLS_CERTIFICATE; exit code 1 if it does not answer 200.",
    )
    parser.add_argument("probe", nargs="?", choices=("ready", "live"), default="ready", help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=2.0, metavar="SECONDS", help="default: %(default)s")
    arguments = parser.parse_args(argv)
    try:
        address = own_address("CERBERANK_")
    except NoAddressError as error:
        sys.stderr.write(f"cerberank probe: {error}\n")
        return 1
    asked = f"{address.url}/health/{arguments.probe}"
    try:
        status, content = _ask(address, f"/health/{arguments.probe}", arguments.timeout)
    except (OSError, HTTPException) as error:
        sys.stderr.write(f"cerberank probe: {asked}: {error}\n")
        return 1
    out = sys.stdout if status == 200 else sys.stderr
    out.write(f"{asked}: {status} {content}\n")
    return 0 if status == 200 else 1


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
