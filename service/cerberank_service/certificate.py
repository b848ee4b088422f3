"""A TLS certificate that is read again when its file changes."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

logger = logging.getLogger(__name__)

CHECK_SECONDS = 10
"""How often the file is looked at."""


class Certificate:
    """The TLS context of one server, whose new connections use a renewed certificate. For one event loop."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Read both PEM files. Raises OSError naming the file that cannot be used."""
        self._chain, self._key = chain, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded = self._changed()
        try:
            self.context.load_cert_chain(chain, key)
        except ssl.SSLError as error:
            raise OSError(f"{chain} and {key} are no certificate with its key: {error}") from error

    async def reload_if_changed(self) -> None:
        """Read the files again if one has changed; files that cannot be used leave the certificate as it was."""
        try:
            changed = self._changed()
            if changed == self._loaded:
                return
            # Into a context of its own first: a chain without its key would leave this one unusable.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._chain, self._key)
            self.context.load_cert_chain(self._chain, self._key)
        except OSError as error:  # also ssl.SSLError; tried again at the next look
            logger.error("the certificate is left as it was: %s", error)
        else:
            self._loaded = changed
            logger.info("the certificate was read again")

    def _changed(self) -> tuple[int, ...]:
        """Times and sizes of both files."""
        found = [path.stat() for path in (self._chain, self._key)]
        return tuple(number for each in found for number in (each.st_mtime_ns, each.st_size, each.st_ino))
