from __future__ import annotations

import asyncio
import logging
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from cerberank_service.certificate import Certificate

BEGIN = datetime(1999, 1, 1, tzinfo=UTC)
END = datetime(2049, 12, 31, 12, 30, 59, tzinfo=UTC)


def write(authority: trustme.CA, chain: Path, key: Path, end: datetime = END) -> bytes:
    """Write a new certificate over the files; returns it in DER form."""
    made = authority.issue_cert("localhost", not_before=BEGIN, not_after=end)
    made.cert_chain_pems[0].write_to_path(chain)
    made.private_key_pem.write_to_path(key)
    return ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())


def shown(context: ssl.SSLContext, authority: trustme.CA) -> bytes | None:
    """The certificate that a new connection gets, which the authority must have signed."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client)

    async def meet() -> bytes | None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost")
        peer = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        server.close()
        return bytes(peer)

    return asyncio.run(meet())


def test_a_renewed_certificate_is_used_for_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that cannot be used leaves the certificate as it was, says so, and is looked at again."""
    authority = trustme.CA()
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    first = write(authority, chain, key)
    certificate = Certificate(chain, key)
    assert shown(certificate.context, authority) == first
    chain.write_text("half of a ")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            asyncio.run(certificate.reload_if_changed())
    assert caplog.text.count("left as it was") == 1
    assert certificate.stale
    assert shown(certificate.context, authority) == first
    second = write(authority, chain, key)
    asyncio.run(certificate.reload_if_changed())
    assert not certificate.stale
    assert shown(certificate.context, authority) == second != first
    os.utime(chain)
    asyncio.run(certificate.reload_if_changed())
    assert shown(certificate.context, authority) == second


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_files_that_cannot_be_used_are_named_at_the_start(tmp_path: Path, content: str | None) -> None:
    """One line with the file's name, instead of a traceback of OpenSSL's."""
    if content is not None:
        (tmp_path / "chain.pem").write_text(content)
        (tmp_path / "key.pem").write_text(content)
    with pytest.raises(OSError, match=r"chain\.pem"):
        Certificate(tmp_path / "chain.pem", tmp_path / "key.pem")


@pytest.mark.parametrize("end", [datetime(1999, 12, 31, 23, 59, 58, tzinfo=UTC), END, datetime(2051, 1, 2, tzinfo=UTC)])
def test_the_end_of_the_certificate_is_known(tmp_path: Path, end: datetime) -> None:
    """In both forms that certificates have for it; of the server's own certificate, not of the chain's others."""
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    authority = trustme.CA()
    write(authority, chain, key, end)
    with chain.open("ab") as file:
        file.write(b"A comment.\n" + authority.cert_pem.bytes())
    chain.write_bytes(b"subject=localhost\n" + chain.read_bytes())
    assert datetime.fromtimestamp(Certificate(chain, key).expires, UTC) == end
