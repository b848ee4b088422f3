"""The options of commands that call an admin port: the token and the trusted certificate."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from cerberank_service.admin.client import Admin, AdminError

TOKEN = "CERBERANK_ADMIN_TOKEN"


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Add `--token-file` and `--certificate`."""
    parser.add_argument("--token-file", type=Path, help=f"file with the token of the admin port; default: {TOKEN}")
    parser.add_argument("--certificate", type=Path, help="PEM file of an authority to trust beside the system's")


def connect(url: str, arguments: argparse.Namespace) -> Admin:
    """The admin port at `url`. Raises AdminError without a token, OSError when a file cannot be read."""
    token = arguments.token_file.read_text().strip() if arguments.token_file else os.environ.get(TOKEN, "")
    if not token:
        raise AdminError(f"no token: set {TOKEN} or --token-file")
    return Admin(url, token, arguments.certificate)
