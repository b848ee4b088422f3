from __future__ import annotations

import os
import resource
import signal
from contextlib import closing

import pytest

from cerberank_service.http.large_body import LargeBody, read_descriptor


@pytest.mark.parametrize("anywhere", [True, False])
def test_what_is_written_is_read_by_every_descriptor(anywhere: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its beginning, also when the body itself is closed; with and without Linux' nameless memory."""
    if not anywhere:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    with closing(LargeBody()) as body:
        for piece in (b"some ", b"", b"bytes " * 10_000):
            body.write(piece)
        descriptors = [body.descriptor() for _ in range(2)]
        assert len(body) == 60_005
    assert [read_descriptor(each) for each in descriptors] == [b"some " + b"bytes " * 10_000] * 2
    for each in descriptors:
        os.close(each)


def test_a_body_that_did_not_find_room_can_be_closed() -> None:
    """What could not be written is not tried again, in whose place another error would come."""
    size = 100_000
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    body = LargeBody()
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(OSError, match="large"):
            body.write(b"a" * (size + 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    body.close()
