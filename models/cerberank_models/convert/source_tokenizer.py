"""A model's own tokenizer: the number of tokens that it reads, and a comparison with the checkpoint's encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import Texts, encoded
from cerberank_models.convert.source import VOCABULARIES, Source
from cerberank_models.encoding import PairEncoder
from cerberank_models.tokens import check_embeddings

MOST_TOKENS = 512
"""The default limit on the tokens of a pair for models that could read more. The time of attention grows with the
square of the length, and a question with 100 candidates of 8,192 tokens would take a processor hours."""
UNLIMITED = 1 << 30
"""The number from which a tokenizer's stated length means that it has no limit; tokenizers then state 10 ** 30."""


def read_tokenizer(source: Source, embeddings: int | None = None, configuration: Any = None) -> Any:
    """The model's fast tokenizer.

    `configuration` is the model's, which a model needs whose config.json does not name its family. Raises
    UnsupportedModelError if it has none (transformers would make an empty one), or if it has a token outside of the
    network's `embeddings`.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source.place, config=configuration, revision=source.commit or "main", trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        if source.has_tokenizer:
            reason = _lacking(source) or str(error).partition("\n")[0]
            raise UnsupportedModelError(f"{source.place}: its tokenizer cannot be read: {reason}") from error
        tokenizer = None
    if not source.has_tokenizer:
        raise UnsupportedModelError(f"{source.place} has no tokenizer: none of {', '.join(VOCABULARIES)}")
    if not isinstance(getattr(tokenizer, "backend_tokenizer", None), Tokenizer):
        raise UnsupportedModelError(f"{source.place} has no fast tokenizer (tokenizer.json)")
    if embeddings is not None:
        _check_vocabulary(source.place, tokenizer.backend_tokenizer, embeddings)
    return tokenizer


def _lacking(source: Source) -> str:
    """The reason if a tokenizer cannot be read for want of a package; transformers would name another one."""
    models = [name for name in VOCABULARIES if name.endswith(".model") and (source.folder / name).is_file()]
    if not models or (source.folder / "tokenizer.json").is_file() or find_spec("sentencepiece") is not None:
        return ""
    return f"{models[0]} needs the package sentencepiece, which the extra `import` lacks: pip install sentencepiece"


def _check_vocabulary(place: str, tokenizer: Tokenizer, embeddings: int) -> None:
    """Raise UnsupportedModelError for a token of the model at `place` outside of the network's `embeddings`."""
    try:
        check_embeddings(tokenizer, embeddings)
    except ValueError as error:
        advice = "save the model again after resize_token_embeddings(len(tokenizer)), or without these tokens"
        raise UnsupportedModelError(f"{place}: {error}; {advice}") from error


def plain_tokenizer(tokenizer: Any) -> Tokenizer:
    """A copy of the `Tokenizer` in a fast tokenizer, without truncation and padding, which are settings of a call."""
    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()
    return plain


def longest_pair(tokenizer: Any, positions: int) -> int:
    """The most tokens of a pair that the model reads: the number that its tokenizer states, but at most `positions`."""
    stated = tokenizer.model_max_length
    return positions if stated >= UNLIMITED else min(int(stated), positions)


def check_pairs(tokenizer: Any, encoder: PairEncoder, texts: Texts, *, max_length: int) -> None:
    """Raise UnsupportedModelError unless `tokenizer` and `encoder` give all pairs the same token ids and types.

    `encoder` must read two segments of at most `max_length` tokens together. Pairs that are too long are cut as Hugging
    Face's tokenizers cut them (`longest_first`). The odd token may go to the other text if both texts, of different
    lengths, would fill the pair alone. A tokenizer without types counts as one whose types are 0.
    """
    everything = [*texts, *_long(texts, max_length)]
    for (question, candidates), got in zip(everything, encoded(encoder, everything), strict=True):
        wanted = tokenizer(
            [question] * len(candidates), list(candidates), truncation="longest_first", max_length=max_length
        )
        for row, ids in enumerate(wanted["input_ids"]):
            here = slice(*got.offsets[row : row + 2].tolist())
            types = wanted["token_type_ids"][row] if "token_type_ids" in wanted else [0] * len(ids)
            pair = f"the pair of {question[:40]!r} and {candidates[row][:40]!r}"
            _compare(f"tokens of {pair}", ids, got.token_ids[here].tolist(), encoder.tokenizer.id_to_token)
            _compare(f"token types of {pair}", types, got.type_ids[here].tolist())


def _long(texts: Texts, length: int) -> Texts:
    """Pairs with a long question, a long candidate, and both, made from the first question's words."""
    question = texts[0][0]
    words = " ".join((question.split() * length)[:length])
    return [(words, [question, words, ""]), (question, [words])]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place at which two sequences differ."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


def _compare(
    subject: str, wanted: Sequence[int], got: Sequence[int], name: Callable[[int], str | None] = lambda number: None
) -> None:
    """Raise UnsupportedModelError, with the first difference by its `name`, unless both sequences are the same."""
    if list(wanted) == list(got):
        return
    place = first_difference(wanted, got)
    theirs, ours = (_shown(each[place], name) if place < len(each) else "nothing" for each in (wanted, got))
    raise UnsupportedModelError(
        f"the {subject}: at place {place} the model's own tokenizer gives {theirs} and its family's template {ours}, "
        f"in all {len(wanted)} and {len(got)}"
    )


def _shown(number: int, name: Callable[[int], str | None]) -> str:
    token = name(number)
    return str(number) if token is None else f"{token!r} ({number})"
