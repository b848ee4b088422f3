"""Texts to token ids, each alone: `[CLS] text [SEP]`, as the first stage's encoder reads them; packed, never padded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tokenizers import Tokenizer

from cerberank_models.config import FirstStageConfig
from cerberank_models.encoding import CHARACTERS_PER_TOKEN, EncodedPairs, lengths_of
from cerberank_models.token_cache import TokenCache
from cerberank_models.tokens import ID_BYTES, Tokens, packed, special_tokens
from cerberank_models.transformer import PAIR_TEMPLATES


class FirstStageEncoder:
    """Encodes questions and candidates. Threads may share one, as they may share a `PairEncoder`."""

    def __init__(self, tokenizer: Tokenizer, config: FirstStageConfig, *, tokenizer_digest: str | None = None) -> None:
        """Switch off the tokenizer's own truncation and padding, for all encoders that share it.

        `tokenizer_digest` is the hash of the tokenizer's file (`Tokens`). Raises ValueError when the family's special
        tokens are missing from the vocabulary.
        """
        first, separator = special_tokens(tokenizer, PAIR_TEMPLATES[config.transformer.family])
        self.tokenizer = tokenizer
        """Shared between encoders."""
        self._head, self._tail = packed([first]), packed([separator])
        self._question, self._candidate = config.question_length, config.candidate_length
        self._question_tokens, self._candidate_tokens = (
            Tokens(tokenizer, most=length, characters=CHARACTERS_PER_TOKEN * length, digest=tokenizer_digest)
            for length in (self._question, self._candidate)
        )

    def question(self, text: str, cache: TokenCache | None = None, *, partition: str = "") -> EncodedPairs:
        """The question as one text of at most `question_length` tokens; `cache` and `partition` as in `candidates`."""
        return self._encode([text], self._question, self._question_tokens, cache, partition)

    def candidates(self, texts: Sequence[str], cache: TokenCache | None = None, *, partition: str = "") -> EncodedPairs:
        """Each candidate as a text of at most `candidate_length` tokens; an empty one is two special tokens.

        Tokens in the `cache` are used only within a `partition`, so that no time tells what is in another one.
        """
        return self._encode(texts, self._candidate, self._candidate_tokens, cache, partition)

    def _encode(
        self, texts: Sequence[str], length: int, tokens: Tokens, cache: TokenCache | None, partition: str
    ) -> EncodedPairs:
        whole, room = tokens(texts, cache, partition), ID_BYTES * length
        content = bytearray().join(self._head + ids[:room] + self._tail for ids in whole)
        sizes = lengths_of(whole)
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum(np.minimum(sizes, room) // ID_BYTES + 2, out=offsets[1:])
        token_ids = np.frombuffer(content, dtype=np.int32)
        return EncodedPairs(
            token_ids=token_ids,
            type_ids=np.zeros_like(token_ids),
            offsets=offsets,
            truncated=(sizes > room) | (lengths_of(texts) > tokens.characters),
        )
