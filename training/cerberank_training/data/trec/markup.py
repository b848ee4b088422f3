"""Reads TREC's markup, which is not XML: blocks such as `<DOC>` and `<top>` whose inner tags need not be closed."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

from cerberank_training.data.question import DataError, read_lines

COMMENT, TAG = re.compile(r"<!--.*?-->", re.DOTALL), re.compile(r"</?[A-Za-z][^<>]*>")


def blocks(path: Path, tag: str, *, encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the first line's number and the text of each `<tag>` block. Tags stand at the start or end of a line.

    Raises DataError with file and line for a block without an end, text between blocks, and a file without blocks.
    """
    start, lines, any_block = 0, list[str](), False
    opening, closing = f"<{tag}>".lower(), f"</{tag}>".lower()
    for number, line in read_lines(path, encoding=encoding):
        edge = line.strip().lower()
        if edge.startswith(opening):
            if start:
                raise DataError(f"{path}:{start}: <{tag}> has no </{tag}> before the next one in line {number}")
            start, lines, any_block = number, [], True
        if start:
            lines.append(line)
        elif edge:
            raise DataError(f"{path}:{number}: expected <{tag}>")
        if start and edge.endswith(closing):
            yield start, "\n".join(lines)
            start = 0
    if start:
        raise DataError(f"{path}:{start}: <{tag}> has no </{tag}>")
    if not any_block:
        raise DataError(f"{path}: no <{tag}>")


def plain(text: str) -> str:
    r"""The text without tags, comments and line breaks, with character references resolved.

    >>> plain("<P>AT&amp;T <F P=105>won</F>\n</P><!-- PJG -->")
    'AT&T won'
    """
    return " ".join(html.unescape(TAG.sub(" ", COMMENT.sub(" ", text))).split())
