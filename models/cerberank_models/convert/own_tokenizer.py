"""A model's own tokenizer: how many tokens it reads, and whether the checkpoint reads pairs as it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import VOCABULARIES, Source
from cerberank_models.encoding import Candidate, PairEncoder

MOST_TOKENS = 512
"""Tokens of a pair that are read where a model could read more and no length is asked for: attention's time grows with
the square of the length, and a question of 100 candidates of 8,192 tokens takes a processor hours."""
UNLIMITED = 1 << 30
"""A tokenizer that knows no length states 10 to the power of 30."""


def read_tokenizer(source: Source) -> Any:
    """The model's fast tokenizer. Raises UnsupportedModelError without one: transformers would make an empty one."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.place, revision=source.commit or "main", trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        if source.has_tokenizer:
            reason = str(error).partition("\n")[0]
            raise UnsupportedModelError(f"{source.place}: its tokenizer cannot be read: {reason}") from error
        tokenizer = None
    if not source.has_tokenizer:
        raise UnsupportedModelError(f"{source.place} has no tokenizer: none of {', '.join(VOCABULARIES)}")
    if not isinstance(getattr(tokenizer, "backend_tokenizer", None), Tokenizer):
        raise UnsupportedModelError(f"{source.place} has no fast tokenizer (tokenizer.json)")
    return tokenizer


def plain_tokenizer(tokenizer: Any) -> Tokenizer:
    """A copy of what a fast tokenizer runs, without its truncation and padding, which are not part of the model."""
    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()
    return plain


def own_length(tokenizer: Any, positions: int) -> int:
    """The most tokens of a pair that the model reads: what its tokenizer states, and no more than `positions`."""
    stated = tokenizer.model_max_length
    return positions if stated >= UNLIMITED else min(int(stated), positions)


def check_pairs(
    tokenizer: Any, encoder: PairEncoder, texts: Sequence[tuple[str, Sequence[str]]], *, max_length: int
) -> None:
    """Raise UnsupportedModelError unless both give each question with its texts the same token ids and types.

    `encoder` reads two segments of at most `max_length` tokens together. Pairs that are too long are cut as Hugging
    Face's tokenizers do (`longest_first`; where two texts of different lengths each fill all room alone, the odd token
    may go to the other). A tokenizer that gives no types lets the model read zeros.
    """
    for question, candidates in [*texts, *_long(texts, max_length)]:
        got = encoder.encode(question, [Candidate(text=text) for text in candidates])
        wanted = tokenizer(
            [question] * len(candidates), list(candidates), truncation="longest_first", max_length=max_length
        )
        for row, ids in enumerate(wanted["input_ids"]):
            here = slice(*got.offsets[row : row + 2].tolist())
            types = wanted["token_type_ids"][row] if "token_type_ids" in wanted else [0] * len(ids)
            pair = f"the pair of {question[:40]!r} and {candidates[row][:40]!r}"
            _compare(f"tokens of {pair}", ids, got.token_ids[here].tolist(), encoder.tokenizer.id_to_token)
            _compare(f"token types of {pair}", types, got.type_ids[here].tolist())


def _long(texts: Sequence[tuple[str, Sequence[str]]], length: int) -> list[tuple[str, list[str]]]:
    """A long question, a long candidate, and both, of the first question's words."""
    question = texts[0][0]
    words = " ".join((question.split() * length)[:length])
    return [(words, [question, words, ""]), (question, [words])]


def _compare(
    what: str, wanted: Sequence[int], got: Sequence[int], name: Callable[[int], str | None] = lambda number: None
) -> None:
    """Raise UnsupportedModelError unless both are the same numbers; the first that differs is told with its `name`."""
    if list(wanted) == list(got):
        return
    place = next(
        (index for index, (own, ours) in enumerate(zip(wanted, got, strict=False)) if own != ours),
        min(len(wanted), len(got)),
    )
    own, ours = (_told(each[place], name) if place < len(each) else "nothing" for each in (wanted, got))
    raise UnsupportedModelError(
        f"the {what}: at place {place} the model's own tokenizer gives {own} and its family's template {ours}, "
        f"in all {len(wanted)} and {len(got)}"
    )


def _told(number: int, name: Callable[[int], str | None]) -> str:
    token = name(number)
    return str(number) if token is None else f"{token!r} ({number})"
