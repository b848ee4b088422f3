"""Tiny encoders with their pre-training heads and tokenizers that can mask, as pre-training takes them."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tests.tiny import hugging_face_config, save_cross_encoder

HEADS = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "electra": "ElectraForPreTraining"}


def save_base(family: str, folder: Path, *, head: str | None = None) -> Path:
    """An encoder in `folder` as `HEADS` or the class `head`; RoBERTa's tokenizer takes <unk> for its mask."""
    save_cross_encoder(family, folder)
    torch.manual_seed(1)
    config = hugging_face_config(family, num_hidden_layers=2, initializer_range=0.05)
    getattr(transformers, head or HEADS[family])(config).save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.mask_token = "<unk>" if family == "roberta" else "[MASK]"
    tokenizer.save_pretrained(folder)
    return folder
