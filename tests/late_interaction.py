"""Tiny public ColBERTs with random weights, as sentence-transformers saves them; it is the oracle of their scores."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from tests.tiny import bert_tokenizer, hugging_face_config, save_tokenizer

TEXTS = ["a, b. c?", "b", "what do bees make honey from?", "the river-city of paris, the tower."]
FIXED = {"strategy": "fixed", "length": 16}


def encoder(folder: Path, family: str) -> Path:
    torch.manual_seed(0)
    transformers.AutoModel.from_config(hugging_face_config(family, num_hidden_layers=2)).save_pretrained(folder)
    save_tokenizer(bert_tokenizer(), folder, types=family == "bert", mask_token="[MASK]")
    return folder


def multi_vector(
    folder: Path,
    *,
    family: str = "bert",
    expansion: dict[str, Any] | None = None,
    prompts: tuple[str, str] = ("[Q] ", "[D] "),
    more: tuple[torch.nn.Module, ...] = (),
    **dense: Any,
) -> MultiVectorEncoder:
    """A tiny model of the library, saved in `folder`."""
    base = encoder(folder.with_name(f"{folder.name}-base"), family)
    body = Transformer(str(base), query_expansion=expansion, query_length=None if expansion else 40)
    body.tokenizer.add_tokens(["[Q] ", "[D] "])
    body.auto_model.resize_token_embeddings(len(body.tokenizer))
    plain = {"bias": False, "activation_function": torch.nn.Identity(), "module_input_name": "token_embeddings"}
    words = [mark for mark in string.punctuation if body.tokenizer.convert_tokens_to_ids(mark) != 1]
    modules = [
        body,
        Dense(32, 8, **plain | dense),
        MultiVectorMask(skiplist_words=words),
        Normalize(module_input_name="token_embeddings"),
        *more,
    ]
    model = MultiVectorEncoder(modules=modules, prompts=dict(zip(("query", "document"), prompts, strict=True)))
    model.save_pretrained(str(folder))
    return model


def expected(model: MultiVectorEncoder, question: str) -> tuple[list[int], np.ndarray]:
    """The number of vectors of each text, the question first, and MaxSim of each candidate."""
    asked, said = model.encode_query([question]), model.encode_document(TEXTS)
    scores = model.similarity(asked, said)[0]
    return [len(each) for each in (*asked, *said)], scores.float().cpu().numpy()
