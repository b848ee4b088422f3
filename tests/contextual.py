"""Tiny models that read `question, candidate, context` (SSP), and Hugging Face's own score of such a triple."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tests.tiny import save_cross_encoder

from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.convert.token_types import grow_token_types


def save_contextual(family: str, folder: Path) -> Path:
    """A tiny classifier whose third segment has a token type of its own, as `train teach --context` writes one."""
    save_cross_encoder(family, folder, num_hidden_layers=2)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    grow_token_types(model, 3, new="fresh", seed=1)
    model.save_pretrained(folder)
    TeacherInput(max_length=60, context=True).write(folder)
    return folder


def segments_score(folder: Path, texts: list[str], types: list[int]) -> float:
    """Hugging Face's model on `[CLS] q [SEP] s [SEP] c [SEP]`, RoBERTa's separators doubled, written out here."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    ids, type_ids = [tokenizer.cls_token_id], [types[0]]
    for place, text in enumerate(texts):
        before = [tokenizer.sep_token_id] * (place > 0 and model.config.model_type == "roberta")
        segment = [*before, *tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.sep_token_id]
        ids += segment
        type_ids += [types[place]] * len(segment)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([type_ids])).logits[0].double()
    return float(torch.sigmoid(logits[1] - logits[0]))
