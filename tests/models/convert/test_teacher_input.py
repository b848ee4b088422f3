"""`teacher.json`: what is written is read, and what the checkpoint of such a teacher encodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_models.convert.teacher_input import TeacherInput


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A folder without the file is a teacher of pairs."""
    assert TeacherInput.read(str(tmp_path)) == TeacherInput(max_length=128, context=False)
    wanted = TeacherInput(max_length=256, context=True)
    wanted.write(tmp_path)
    assert TeacherInput.read(str(tmp_path)) == wanted


@pytest.mark.parametrize("context", [False, True])
def test_its_encoding(context: bool) -> None:
    """The same length, a segment for the context, the longest segments are cut."""
    encoding = TeacherInput(max_length=256, context=context).encoding()
    assert (encoding.max_length, encoding.segments) == (256, 3 if context else 2)
    assert encoding.truncation == "longest_first"


def test_a_length_without_room_is_refused() -> None:
    """The special tokens alone fill it."""
    with pytest.raises(ValueError, match="max_length must be more than 7"):
        TeacherInput(max_length=7).encoding()
