from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cerberank_service.access.bearer import bearer, digest, same


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([], None),
        ([(b"authorization", b"Bearer abc")], b"abc"),
        ([(b"authorization", b"bEARER  abc ")], b"abc"),
        ([(b"authorization", b"Bearer ")], None),
        ([(b"authorization", b"Bearerabc")], None),
        ([(b"authorization", b"Basic abc")], None),
        ([(b"x-authorization", b"Bearer abc")], None),
        ([(b"authorization", b"Bearer abc"), (b"authorization", b"Bearer abc")], None),
    ],
)
def test_exactly_one_bearer_secret_counts(headers: list[tuple[bytes, bytes]], secret: bytes | None) -> None:
    """Two headers may mean one thing to a proxy and another to us: they mean nothing."""
    assert bearer(headers) == secret


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_digests_are_the_same_only_for_the_same_secret(one: bytes, other: bytes) -> None:
    """Whatever bytes they are."""
    assert same(digest(one), digest(other)) == (one == other)
