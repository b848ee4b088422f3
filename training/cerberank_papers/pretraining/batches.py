"""Makes padded batches of examples, in the layout in which rankers read question, candidate and context.

The layout is `[CLS] a [SEP] b [SEP] c [SEP]` with token types 0, 1, 2, by the same `PairEncoder` (SSP appendix C).
Hugging Face's collator masks 15 % of the tokens for language modelling, but no special tokens: of the masked tokens,
80 % become [MASK], 10 % another token, and 10 % stay unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import DataCollatorForLanguageModeling

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import PairEncoder
from cerberank_models.transformer import Family
from cerberank_papers.pretraining.examples import Example, Item

SEGMENTS = 3


class Batches:
    """Makes batches. A batch depends only on its items and the seed."""

    def __init__(self, tokenizer: Any, *, family: Family, max_length: int, masks: bool, seed: int) -> None:
        """`tokenizer` is Hugging Face's. Raises ValueError when it lacks a needed special token."""
        if masks and tokenizer.mask_token is None:
            raise ValueError("the base's tokenizer has no mask token, which language modelling needs")
        self._tokenizer = tokenizer
        self._masks = masks
        self._seed = seed
        self._encoder = PairEncoder(
            Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()),
            family=family,
            config=TeacherInput(max_length=max_length, context=True).encoding(),
            type_vocab_size=SEGMENTS,
        )
        self._special = np.asarray(tokenizer.all_special_ids)

    def __call__(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """The tensors `input_ids`, `token_type_ids` and `attention_mask` [n, length], and `ssp_labels` [n].

        With masks, `labels` [n, length] have the original tokens in masked positions and -100 elsewhere.
        """
        rows = [row for _, examples in items for row in self._rows(examples)]
        seed = random.Random(f"{self._seed}/masks/{items[0][0]}").getrandbits(63)
        collator = DataCollatorForLanguageModeling(self._tokenizer, mlm=self._masks, seed=seed)
        collator.generator = torch.Generator().manual_seed(seed)  # the default generator would depend on the process
        batch = dict(collator(rows))
        if not self._masks:
            del batch["labels"]
        batch["ssp_labels"] = torch.tensor([example.label for _, examples in items for example in examples])
        return batch

    def _rows(self, examples: Sequence[Example]) -> list[dict[str, list[int]]]:
        encoded = self._encoder.encode(examples[0].a, [example.b for example in examples])
        rows = []
        for start, stop in zip(encoded.offsets, encoded.offsets[1:], strict=False):
            ids = encoded.token_ids[start:stop]
            row = {"input_ids": ids.tolist(), "token_type_ids": encoded.type_ids[start:stop].tolist()}
            row["attention_mask"] = [1] * len(ids)
            if self._masks:
                row["special_tokens_mask"] = np.isin(ids, self._special).astype(int).tolist()
            rows.append(row)
        return rows
