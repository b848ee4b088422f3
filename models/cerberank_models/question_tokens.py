"""Turns questions into token ids, and chooses what is read of a question that is too long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cerberank_models.frame import Frame
from cerberank_models.text_config import QuestionPart
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import ID_BYTES, MOST_CHARACTERS, Tokens

FEWEST, LINES = 5, 8
"""The fewest tokens that are a question, so that "Thanks!" is none, and the last lines among which one is sought."""
TOKENS_PER_CHARACTER = 4
"""The most tokens of a character: byte-level tokenizers have a token for each byte of UTF-8."""
ALONE = Frame(head=b"", join=b"", tail=b"")


class QuestionTokens:
    """Turns questions into token ids. Threads may share an instance.

    Of a question with more than `limit` tokens, `end` leaves its last line, because a chat's history stands before the
    question that it ends with; if that has fewer than FEWEST tokens, also the lines before it up to so many; and of
    these the last `limit` tokens. `start` leaves the first `limit` tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, limit: int, part: QuestionPart, characters: int, digest: str | None
    ) -> None:
        """Read at most `characters` characters of a question; `digest` is that of `Tokens`."""
        characters = min(MOST_CHARACTERS, characters)
        self._limit, self._part = limit, part
        most = limit if part == "start" else TOKENS_PER_CHARACTER * characters
        self._tokens = Tokens(tokenizer, most=most, characters=characters, digest=digest)

    def __call__(
        self, questions: Sequence[str], cache: TokenCache | None, partition: str, frame: Frame = ALONE
    ) -> tuple[list[bytes], NDArray[np.bool_]]:
        """The token ids of each question in a pair's `frame`, as int32, and True for each question that was cut.

        The cache is used as by `Tokens`.
        """
        characters, room = self._tokens.characters, ID_BYTES * self._limit
        texts = [each[:characters] if self._part == "start" else tail(each, characters) for each in questions]
        tokens = self._tokens([frame.question(text) for text in texts], cache, partition)
        cut = np.array(
            [len(ids) > room or len(each) > characters for ids, each in zip(tokens, questions, strict=True)], np.bool_
        )
        for place in np.flatnonzero(cut).tolist():
            if self._part == "start":
                tokens[place] = tokens[place][:room]
            else:
                tokens[place] = self._end(texts[place], room, frame)
        return tokens, cut

    def _end(self, text: str, room: int, frame: Frame) -> bytes:
        lines = [line for line in text.splitlines() if line.strip()][-LINES:] or [""]
        lengths = [len(ids) for ids in self._tokens(lines[::-1], None, "")]
        taken = 1 + int(np.searchsorted(np.cumsum(lengths), ID_BYTES * FEWEST))
        (ids,) = self._tokens([frame.question("\n".join(lines[-taken:]))], None, "")
        lead = ID_BYTES * frame.before_question
        return ids if len(ids) <= room else ids[:lead] + ids[lead + len(ids) - room :]


def tail(text: str, characters: int) -> str:
    """The last `characters` characters of a text before the blanks at its end; the whole text if it has no more.

    >>> tail("tall? ", 6), tail("how tall?    ", 5)
    ('tall? ', 'tall?')
    """
    return text if len(text) <= characters else text.rstrip()[-characters:]
