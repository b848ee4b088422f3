"""The secret that a request brings: `Authorization: Bearer SECRET`."""

from __future__ import annotations

import hmac
from hashlib import sha256

SCHEME = b"bearer "


def bearer(headers: list[tuple[bytes, bytes]]) -> bytes | None:
    """The secret in an ASGI scope's headers (names in lower case); None unless there is exactly one."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1 or given[0][: len(SCHEME)].lower() != SCHEME:
        return None
    return given[0][len(SCHEME) :].strip() or None


def digest(secret: bytes) -> bytes:
    """SHA-256: enough for secrets that were drawn at random, of which there are too many to try."""
    return sha256(secret).digest()


def same(one: bytes, other: bytes) -> bool:
    """Whether two digests are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)
