"""Examples as a padded batch: the layout in which fine-tuned and served models read question, candidate and context.

`[CLS] a [SEP] b [SEP] c [SEP]` with token types 0, 1, 2, by the project's own `PairEncoder` (SSP appendix C). Masks for
language modelling are Hugging Face's: 15 % of the tokens, of these 80 % [MASK], 10 % another token, 10 % unchanged;
never special tokens.
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
from cerberank_training.pretraining.examples import Example

Item = tuple[int, list[Example]]
"""An item's number, which its masks follow from, and examples with the same a."""

SEGMENTS = 3


class Batches:
    """Makes the batch of given items; it follows from them and the seed alone."""

    def __init__(self, tokenizer: Any, *, family: Family, max_length: int, masks: bool, seed: int) -> None:
        """`tokenizer` is Hugging Face's; raises ValueError where it lacks a special token that is needed."""
        if masks and tokenizer.mask_token is None:
            raise ValueError("the base's tokenizer has no mask token, which language modelling needs")
        self._tokenizer, self._masks, self._seed = tokenizer, masks, seed
        self._encoder = PairEncoder(
            Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()),
            family=family,
            config=TeacherInput(max_length=max_length, context=True).encoding(),
            type_vocab_size=SEGMENTS,
        )
        self._special = np.asarray(tokenizer.all_special_ids)

    def __call__(self, items: Sequence[Item]) -> dict[str, Tensor]:
        """`input_ids`, `token_type_ids`, `attention_mask` [n, length], `ssp_labels` [n]; with masks `labels` as well.

        `labels` are the original tokens where they are masked, and -100 elsewhere.
        """
        rows = [row for _, examples in items for row in self._rows(examples)]
        seed = random.Random(f"{self._seed}/masks/{items[0][0]}").getrandbits(63)
        collator = DataCollatorForLanguageModeling(self._tokenizer, mlm=self._masks, seed=seed)
        collator.generator = torch.Generator().manual_seed(seed)  # its own would depend on the process that makes it
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
