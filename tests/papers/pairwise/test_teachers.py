"""Teachers stay frozen, and those that a student cannot be compared with are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.text_rankers import COLBERT, MONO, TR_COLBERT, TR_TWIN, TWIN, text_ranker
from tests.tiny import bert_tokenizer

from cerberank_models.text_encoding import TextEncoder
from cerberank_papers.pairwise.teachers import FrozenTeacher, Teachers
from cerberank_papers.pairwise.triple_batch import count_cut
from cerberank_papers.pairwise.triple_sampling import Triple

STUDENT = text_ranker(TR_TWIN)


def teacher(shape: dict[str, Any], *, name: str = "teachers/t", **changes: Any) -> FrozenTeacher:
    return FrozenTeacher(name, text_ranker(shape, **changes), bert_tokenizer())


def test_texts_that_do_not_fit_are_counted() -> None:
    """Questions and documents, each against the length of its kind."""
    encoder = TextEncoder(bert_tokenizer(), STUDENT.config)
    lengths = STUDENT.config.encoding
    long = [" ".join(["what"] * (length + 1)) for length in (lengths.question_length, lengths.document_length)]
    triples = [Triple("what is a ?", "a is a city", "b"), Triple(long[0], long[1], "b")]
    assert count_cut(triples, encoder) == (2, 6)
    assert count_cut(triples[:1], encoder) == (0, 3)


def test_fitting_teachers_are_accepted() -> None:
    """Also with truncation switched on in the teacher's tokenizer, which encoders switch off."""
    mono = teacher(MONO)
    mono.tokenizer.enable_truncation(16)
    Teachers(mono=mono, bi=teacher(TWIN)).check(STUDENT.config, bert_tokenizer())


@pytest.mark.parametrize(
    ("role", "other", "message"),
    [
        ("mono", teacher(MONO, hidden_size=64), "teachers/t has the width 64, student random 32"),
        ("bi", teacher(TWIN, hidden_size=64), "teachers/t has the width 64, student random 32"),
        ("mono", teacher(MONO, family="roberta"), "teachers/t and student random have different tokenizers"),
        ("mono", teacher(TWIN), "teaches ranker 1"),
        ("bi", teacher(COLBERT), "teachers/t has the token ranker colbert, random twin"),
        ("bi", teacher(MONO), "teachers/t has the token ranker None, random twin"),
    ],
)
def test_others_are_refused(role: str, other: FrozenTeacher, message: str) -> None:
    """Each with a message that names teacher and student."""
    with pytest.raises(ValueError, match=message):
        Teachers(**{role: other}).check(STUDENT.config, bert_tokenizer())


def test_colberts_projections_must_agree() -> None:
    """Vectors of 8 and of 16 numbers cannot be compared."""
    wide = text_ranker(COLBERT)
    wide.config = wide.config.model_copy(update={"projection": 16})
    with pytest.raises(ValueError, match="teachers/t projects to 16, random to 8"):
        Teachers(bi=FrozenTeacher("teachers/t", wide, bert_tokenizer())).check(
            text_ranker(TR_COLBERT).config, bert_tokenizer()
        )


def test_the_students_texts_must_fit_into_the_teacher() -> None:
    """The student's longest sequence has 12 + 16 + 3 tokens."""
    short = text_ranker(MONO)
    transformer = short.config.transformer.model_copy(update={"max_positions": 30})
    short.config = short.config.model_copy(update={"transformer": transformer})
    with pytest.raises(ValueError, match="up to 31 tokens, teacher teachers/t has 30 positions"):
        Teachers(mono=FrozenTeacher("teachers/t", short, bert_tokenizer())).check(STUDENT.config, bert_tokenizer())
