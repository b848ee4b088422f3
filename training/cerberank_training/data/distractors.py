"""Makes negatives that look like the answer: a positive with a changed number, name or polarity, or without the answer.

A number or name is only changed if the question contains it too. If the question does not state a year, a wrong year
cannot be recognised from the texts, and a ranker could only learn the rules of this module.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

from cerberank_models.encoding import Candidate

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
"""Numbers, years, dates and versions."""
NAME = re.compile(r"\b[A-Z][\w'\u2019-]*(?:\s+[A-Z][\w'\u2019-]*)*")
"""Adjacent words that begin with capitals."""
AUXILIARY = re.compile(r"\b(is|are|was|were|has|had|can|could|will|would|may|must|should)\b(?!['\u2019])")
"""A verb that may be followed by `not`."""
NEGATIVE = re.compile(r"\b(no|not|never|none|nothing|nobody|neither|without|cannot)\b|n['\u2019]t\b", re.I)
MOST_ANSWER_WORDS = 5
"""A longer answer is most of the statement."""
ASKS_FOR_A_FACT = re.compile(r"(in |at |on |by )?(who|whom|whose|when|where|which|what|why|how)\b(?!['\u2019])", re.I)
"""The start of a question that is not answered by yes or no. A negated statement can answer those questions (no)."""


def changed(question: str, positive: Candidate, others: Sequence[Candidate], rng: random.Random) -> Candidate | None:
    """`positive` with another number or name in place of one that the question has too, or else with a `not`.

    New names are taken from `others`, candidates of the same document. None if no rule applies.
    """
    rules = [_other_number, _other_name]
    rng.shuffle(rules)
    for rule in (*rules, _negated):
        if (text := rule(question, positive.text, others, rng)) is not None:
            return replace(positive, text=text)
    return None


def without_answer(positive: Candidate, answers: Sequence[str]) -> Candidate | None:
    """`positive` without the longest of its short answers. The rest still has the words of the question.

    None if it has no answer of at most MOST_ANSWER_WORDS words, or if the rest has another answer or no word.
    """
    stated = [answer for answer in answers if answer.strip()]
    present = [answer for answer in stated if re.search(_whole_words(answer), positive.text)]
    short = [answer for answer in present if len(answer.split()) <= MOST_ANSWER_WORDS]
    if not short:
        return None
    rest = " ".join(re.sub(_whole_words(max(short, key=len)), " ", positive.text).split())
    if not re.search(r"\w", rest) or any(re.search(_whole_words(answer), rest, re.I) for answer in stated):
        return None
    return replace(positive, text=rest)


def _whole_words(words: str) -> str:
    """A pattern of these words, which may begin or end with marks, but not within another word."""
    return rf"(?<!\w){re.escape(words)}(?!\w)"


def _other_number(question: str, text: str, others: Sequence[Candidate], rng: random.Random) -> str | None:
    """Replace the digits in the second half of a shared number, so that 1998 stays in its century."""
    shared = sorted(set(NUMBER.findall(question)) & set(NUMBER.findall(text)))
    if not shared:
        return None
    number = rng.choice(shared)
    unchanged = len(number) // 2
    other = number[:unchanged] + "".join(
        _other_digit(mark, rng) if mark.isdigit() else mark for mark in number[unchanged:]
    )
    return re.sub(rf"(?<![\d.,]){re.escape(number)}(?!\d)", other, text)


def _other_digit(digit: str, rng: random.Random) -> str:
    return rng.choice([other for other in "123456789" if other != digit])


def _other_name(question: str, text: str, others: Sequence[Candidate], rng: random.Random) -> str | None:
    shared = [name for name in _names(text) if re.search(rf"\b{re.escape(name)}\b", question)]
    known = {name for other in others for name in _names(other.text)}
    strange = sorted(name for name in known if name not in question and name not in text)
    if not shared or not strange:
        return None
    name = rng.choice(shared)
    same_length = [other for other in strange if len(other.split()) == len(name.split())]
    return re.sub(rf"\b{re.escape(name)}\b", rng.choice(same_length or strange).replace("\\", ""), text)


def _names(text: str) -> list[str]:
    """The names in a text. A single word at the start of a sentence is left out, because it always has a capital."""
    return [
        match.group()
        for match in NAME.finditer(text)
        if len(match.group()) > 2
        and (" " in match.group() or not (match.start() == 0 or text[: match.start()].rstrip()[-1:] in ".!?:\"'“"))
    ]


def _negated(question: str, text: str, others: Sequence[Candidate], rng: random.Random) -> str | None:
    places = list(AUXILIARY.finditer(text))
    if not places or NEGATIVE.search(text) or not ASKS_FOR_A_FACT.match(question):
        return None
    end = rng.choice(places).end()
    return f"{text[:end]} not{text[end:]}"
