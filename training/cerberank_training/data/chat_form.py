"""Questions as people type them into a chat: with a greeting or politeness, in small letters, with typing errors."""

from __future__ import annotations

import random
import re

GREETINGS = ("hi", "hello", "hey", "hi there", "good morning", "hey there", "hello there")
POLITE = (
    "can you tell me",
    "could you tell me",
    "please tell me",
    "do you know",
    "i'd like to know",
    "i want to know",
    "quick question",
    "any idea",
)
ENDS = ("thanks", "please", "thank you", "thx", "pls")
LONG_WORD = re.compile(r"\b[a-z]{5,}\b")
"""Words that may get a typing error. Names and numbers may not, because answers may differ by them."""


def chat_form(question: str, rng: random.Random) -> str:
    """The question with one or two changes; its words keep their order.

    >>> chat_form("Who discovered the river Rhine?", random.Random(4))
    'could you tell me, who discovered the river Rhine?'
    """
    # The typing error comes first, so that it is in a word of the question and not in a name in small letters.
    changes = [_mistyped, _unmarked, _polite, _greeted, _ended, _small]
    chosen = rng.sample(changes, rng.choice((1, 2, 2)))
    for change in filter(chosen.__contains__, changes):
        question = change(question, rng)
    return question


def _greeted(question: str, rng: random.Random) -> str:
    return f"{rng.choice(GREETINGS)}{rng.choice((', ', '! ', ' '))}{question}"


def _polite(question: str, rng: random.Random) -> str:
    return f"{rng.choice(POLITE)}{rng.choice((' ', ': ', ', '))}{question[:1].lower()}{question[1:]}"


def _ended(question: str, rng: random.Random) -> str:
    return f"{question} {rng.choice(ENDS)}"


def _small(question: str, rng: random.Random) -> str:
    return question.lower()


def _unmarked(question: str, rng: random.Random) -> str:
    return question.rstrip("?! .")


def _mistyped(question: str, rng: random.Random) -> str:
    """The question with an error in a long word: two letters are swapped, or one is left out or doubled."""
    words = list(LONG_WORD.finditer(question))
    if not words:
        return question
    word = rng.choice(words)
    at = word.start() + rng.randrange(1, len(word.group()) - 2)
    first, second = question[at], question[at + 1]
    typed = rng.choice((second + first, second, first + first + second))
    return question[:at] + typed + question[at + 2 :]
