from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from cerberank_models.encoding import Candidate
from cerberank_training.teachers.pair_keys import data_digest, pair_keys

TEXTS = st.text(st.characters(), max_size=6)
CANDIDATES = st.builds(lambda text, previous, next_: Candidate(text=text, previous=previous, next=next_), *[TEXTS] * 3)


def test_a_key_is_what_the_docstring_says() -> None:
    """Written out once by hand: caches must stay readable when the code is changed."""
    framed = b"\x01\0\0\0\0\0\0\0q\x02\0\0\0\0\0\0\0\xc3\xa9"
    expected = int.from_bytes(hashlib.blake2b(framed, digest_size=8).digest(), "little")
    assert pair_keys("q", [Candidate(text="é", previous="x")], context=False).tolist() == [expected]


@given(st.lists(st.tuples(TEXTS, CANDIDATES), max_size=8), st.booleans())
def test_keys_are_equal_exactly_when_the_texts_that_count_are(
    pairs: list[tuple[str, Candidate]], context: bool
) -> None:
    """No two splits of the same text share a key; lone surrogates have keys too."""
    keys = [int(pair_keys(question, [candidate], context=context)[0]) for question, candidate in pairs]
    counted = [(question, candidate if context else Candidate(text=candidate.text)) for question, candidate in pairs]
    assert len(set(keys)) == len(set(counted))


def test_many_candidates_get_the_keys_that_each_gets_alone() -> None:
    """The question is hashed once for all of them."""
    candidates = [Candidate(text=text) for text in ("a", "", "a b")]
    together = pair_keys("q", candidates, context=True).tolist()
    assert together == [int(pair_keys("q", [one], context=True)[0]) for one in candidates]


def test_the_datas_digest_knows_order() -> None:
    """The digest depends on the order of the keys and not on the machine's byte order."""
    keys = pair_keys("q", [Candidate(text="a"), Candidate(text="b")], context=False)
    assert data_digest(keys) != data_digest(keys[::-1])
    assert data_digest(keys) == data_digest(keys.astype(">u8"))
