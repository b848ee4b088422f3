from __future__ import annotations

from tools.size import lines_of_code

MODULE = '''"""A module."""

import os
from os import (
    path,
)

LIMIT = 3
"""What an attribute holds."""


def told(  # a comment
    name: str,
) -> str:
    """A docstring
    of two lines."""
    # a comment

    return f"""{name}
        {os.sep}{path}"""
'''


def test_only_code_is_counted() -> None:
    """An attribute, its description, a signature of three lines, and a statement of two."""
    assert lines_of_code(MODULE) == 7
