"""Lines of commands: names that others chose cannot write to the terminal."""

from __future__ import annotations

import pytest

from cerberank_models.output import note, say


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """On both outputs; the lines of a table and letters of any script stay."""
    for write in (say, note):
        write("model \x1b[2J\x9b1m\rname\nsecond line é 模 \N{GRINNING FACE}")
    expected = "model \\x1b[2J\\x9b1m\\rname\nsecond line é 模 \N{GRINNING FACE}\n"
    assert capsys.readouterr() == (expected, expected)
