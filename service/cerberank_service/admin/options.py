"""The options of commands that call an admin port: the token and the trusted certificate."""

from __future__ import annotations

import argparse
import os
import ssl
from pathlib import Path

from cerberank_service.admin.client import Admin, AdminError
from cerberank_service.admin.own_service import own_address, pinned

TOKEN = "CERBERANK_ADMIN_TOKEN"


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add `--token-file` and `--certificate`."""
    parser.add_argument("--token-file", type=Path, help=f"file with the token of the admin port; default: {TOKEN}")
    parser.add_argument("--certificate", type=Path, help="PEM file of an authority to trust beside the system's")


def connect(url: str | None, arguments: argparse.Namespace) -> Admin:
    """The admin port at `url`, or that of this machine's service, whose certificate is trusted.

    Raises AdminError without a token or a port, OSError, which names the file, when one cannot be read.
    """
    token = arguments.token_file.read_text().strip() if arguments.token_file else os.environ.get(TOKEN, "")
    if not token:
        raise AdminError(f"no token: set {TOKEN} or --token-file")
    context = _trusting(arguments.certificate) if arguments.certificate else None
    if url is not None:
        return Admin(url, token, context)
    try:
        own = own_address("CERBERANK_ADMIN_")
    except ValueError as error:
        raise AdminError(f"{error}; name the address by --url") from error
    if own.certificate is not None and context is None:
        context = pinned(own.certificate)
    return Admin(own.url, token, context)


def _trusting(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(certificate)
    except OSError as error:  # which does not name the file
        raise OSError(f"{certificate}: {error.strerror or error}") from error
    return context
