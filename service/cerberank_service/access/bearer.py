"""Bearer authentication: the secret in the header `Authorization: Bearer SECRET`."""

from __future__ import annotations

import hmac
from hashlib import sha256

SCHEME = b"bearer "


def bearer(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """The secret in an ASGI scope's headers (names in lower case); None unless there is exactly one such header."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1 or given[0][: len(SCHEME)].lower() != SCHEME:
        return None
    return given[0][len(SCHEME) :].strip() or None


def digest(secret: bytes) -> bytes:
    """SHA-256 of a secret. A fast hash suffices, because secrets are random and too long to guess."""
    return sha256(secret).digest()


def same(one: bytes, other: bytes) -> bool:
    """Compare two digests in constant time."""
    return hmac.compare_digest(one, other)
