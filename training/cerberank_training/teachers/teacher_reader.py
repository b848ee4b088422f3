"""Encodes pairs of question and candidate as the token ids that a Hugging Face teacher reads.

Without context the teacher's own tokenizer encodes the pairs. For a teacher with context, pairs are
`q [SEP] s [SEP] c`, by the `PairEncoder` that a checkpoint of its weights would have (SSP section 3, appendix C).
RoBERTa has two separators between segments. Segment i has the token type i, or the last type that the model has.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from torch import Tensor

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import CHARACTERS_PER_TOKEN, Candidate, PairEncoder
from cerberank_models.tokens import replace_surrogates
from cerberank_models.transformer import PAIR_TEMPLATES
from cerberank_training.data.sampling import Group, count_cut

Pair = tuple[str, Candidate]
Ids = dict[str, list[list[int]]]
"""Token ids by the name of the model's argument, one list per pair."""


class TeacherReader:
    """Encodes pairs for one teacher; a pair that is too long is cut at the ends of its longest segments."""

    def __init__(self, tokenizer: Any, model: Any, encoding: TeacherInput) -> None:
        """`model` is the configuration of the transformers model, `tokenizer` its tokenizer.

        Raises ValueError for a teacher with context whose special tokens belong to no known family.
        """
        self._tokenizer = tokenizer
        self._input = encoding
        self._types = getattr(model, "type_vocab_size", 1)
        self._encoder: PairEncoder | None = None
        # RoBERTa's tokenizer gives no token types, even if the model's table of types was enlarged.
        if encoding.context or (self._types > 1 and "token_type_ids" not in tokenizer.model_input_names):
            self._encoder = self._pair_encoder()

    def __call__(self, pairs: Sequence[Pair]) -> Ids:
        """The token ids of the pairs, in order."""
        if self._encoder is not None:
            return self._encoded(self._encoder, pairs)
        return dict(self._tokenized(pairs))

    def padded(self, ids: Ids) -> dict[str, Tensor]:
        """The token ids of some pairs as tensors of equal length, with their attention mask."""
        return dict(self._tokenizer.pad(ids, return_tensors="pt"))

    def count_cut(self, groups: Sequence[Group]) -> tuple[int, int]:
        """The number of pairs that do not fit, and of all pairs."""
        if self._encoder is not None:
            return count_cut(groups, self._encoder)
        pairs = [(group.question, candidate) for group in groups for candidate in group.candidates]
        return sum(bool(each.overflowing) for each in self._tokenized(pairs).encodings or ()), len(pairs)

    def _tokenized(self, pairs: Sequence[Pair]) -> Any:
        """The pairs as the teacher's own tokenizer encodes them."""
        questions = [self._text(question) for question, _ in pairs]
        answers = [self._text(candidate.text) for _, candidate in pairs]
        return self._tokenizer(questions, answers, truncation="longest_first", max_length=self._input.max_length)

    def _encoded(self, encoder: PairEncoder, pairs: Sequence[Pair]) -> Ids:
        ids: list[list[int]] = []
        types: list[list[int]] = []
        for question, group in groupby(pairs, key=lambda pair: pair[0]):
            encoded = encoder.encode(question, [candidate for _, candidate in group])
            for start, stop in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True):
                ids.append(encoded.token_ids[start:stop].tolist())
                types.append(encoded.type_ids[start:stop].tolist())
        return {"input_ids": ids} | ({"token_type_ids": types} if self._types > 1 else {})

    def _pair_encoder(self) -> PairEncoder:
        special = (self._tokenizer.cls_token, self._tokenizer.sep_token)
        family = next((name for name, t in PAIR_TEMPLATES.items() if (t.first, t.separator) == special), None)
        if family is None:
            raise ValueError(f"context needs the special tokens of BERT or RoBERTa, not {special[0]} and {special[1]}")
        return PairEncoder(
            self._tokenizer.backend_tokenizer,
            family=family,
            config=self._input.encoding(),
            type_vocab_size=max(1, self._types),
        )

    def _text(self, text: str) -> str:
        """The beginning of a text that can fit into a pair, so that a text of megabytes is not tokenised as a whole."""
        return replace_surrogates(text[: CHARACTERS_PER_TOKEN * self._input.max_length])
