"""The certificate of a server, which is read again when its files change."""

from __future__ import annotations

import logging
import re
import ssl
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path

logger = logging.getLogger(__name__)

CHECK_SECONDS = 10
"""Seconds between two checks of the certificate's files."""


class Certificate:
    """The TLS context of one server; new connections use a renewed certificate. Used by one event loop only."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Read both PEM files. Raises OSError, which names the unusable file."""
        self._chain = chain
        self._key = key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded = self._changed()
        try:
            self.context.load_cert_chain(chain, key)
        except ssl.SSLError as error:
            raise OSError(f"{chain} and {key} are not certificate with its key: {error}") from error
        self.expires = _expiry(chain)
        """The end of the certificate that is in use, in Unix seconds."""
        self.stale = False
        """True while the files have changed and cannot be used."""

    async def reload_if_changed(self) -> None:
        """Read the files again if one has changed. If they are unusable, the old certificate stays in use."""
        try:
            changed = self._changed()
            if changed != self._loaded:
                # Checked in another context first, because a chain that does not fit the key would make this one
                # unusable.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._chain, self._key)
                self.context.load_cert_chain(self._chain, self._key)
                self.expires = _expiry(self._chain)
                self._loaded = changed
                logger.info("the certificate was read again; it ends at %s", datetime.fromtimestamp(self.expires, UTC))
            self.stale = False
        except OSError as error:  # includes ssl.SSLError; retried at the next check
            if not self.stale:
                logger.error("the certificate is left as it was: %s", error)
            self.stale = True

    def _changed(self) -> tuple[int, ...]:
        """The modification times, sizes and inodes of both files."""
        states = [path.stat() for path in (self._chain, self._key)]
        return tuple(number for state in states for number in (state.st_mtime_ns, state.st_size, state.st_ino))


def _expiry(chain: Path) -> float:
    """The end of the first certificate of a PEM file that OpenSSL has accepted, in Unix seconds.

    Python's `ssl` tells it only of certificates of peers, so the field is looked up in DER (RFC 5280, 4.1).
    """
    match = CERTIFICATE.search(chain.read_bytes())
    if match is None:
        raise OSError(f"{chain} has no certificate in PEM form")
    certificate, *_ = _parts(b64decode(match[1]))
    fields = _parts(_parts(certificate[1])[0][1])
    if fields[0][0] == VERSION_TAG:  # left out in version 1
        del fields[0]
    _, (tag, digits) = _parts(fields[3][1])  # serial number, algorithm, issuer, and then the first and last moment
    moment = digits.decode()
    if tag == UTC_TIME:  # two digits of the year, from 1950 to 2049
        moment = ("19" if moment >= "50" else "20") + moment
    return datetime.strptime(moment, "%Y%m%d%H%M%S%z").timestamp()


CERTIFICATE = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END", re.DOTALL)
VERSION_TAG, UTC_TIME = 0xA0, 0x17


def _parts(content: bytes) -> list[tuple[int, bytes]]:
    """The tags and contents of consecutive DER values."""
    parts, at = [], 0
    while at < len(content):
        tag, length, at = content[at], content[at + 1], at + 2
        if length >= 0x80:  # the number of bytes that state the length
            count = length & 0x7F
            length, at = int.from_bytes(content[at : at + count]), at + count
        parts.append((tag, content[at : at + length]))
        at += length
    return parts
