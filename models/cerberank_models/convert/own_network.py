"""A sequence classifier as transformers loads it: its configuration, its network with all weights, and its scores.

What cannot be loaded is refused with the reason. Code that a repository brings is never run.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
)

from cerberank_models.backends.contract import Scores, probability
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import CONFIG, Source

MODULES, SENTENCE_TRANSFORMERS = "modules.json", "config_sentence_transformers.json"
"""The files in which sentence-transformers lists a model's modules, and says what kind of model they are."""
KINDS = {
    "SentenceTransformer": "a bi-encoder, which reads texts one by one: `checkpoint first-stage` makes it the first "
    "stage of a ranker",
    "MultiVectorEncoder": "a multi-vector encoder, which reads texts one by one; only cross-encoders are ranked with",
    "SparseEncoder": "a sparse encoder, which reads texts one by one; only cross-encoders are ranked with",
}
"""Kinds of models of sentence-transformers that are not cross-encoders, in words."""


def read_config(source: Source) -> Any:
    """The configuration; raises UnsupportedModelError for a model that needs code of its repository."""
    try:
        return AutoConfig.from_pretrained(source.place, revision=source.commit or "main", trust_remote_code=False)
    except ValueError as error:
        if "auto_map" in (source.optional_json(CONFIG) or {}):
            raise UnsupportedModelError(
                f"{source.place} needs Python code of its repository (auto_map in {CONFIG}), which is never run here: "
                "only architectures that transformers itself has can be imported"
            ) from error
        raise


def check_kind(source: Source, described: Any) -> None:
    """Raise UnsupportedModelError, which says what the model is, for one that is not a cross-encoder of one network.

    `described` is its `transformers` configuration. Nothing is loaded but files beside it.
    """
    kind = (source.optional_json(SENTENCE_TRANSFORMERS) or {}).get("model_type")
    modules = [each["type"].rpartition(".")[2] for each in source.optional_json(MODULES) or []]
    if kind is None and "Pooling" in modules:  # as sentence-transformers before 5.0 saved it
        kind = "SentenceTransformer"
    if kind in KINDS:
        raise UnsupportedModelError(f"{source.place} is {KINDS[kind]}")
    if unknown := [name for name in modules if name != "Transformer"]:
        raise UnsupportedModelError(
            f"{source.place} is a cross-encoder with the sentence-transformers modules {', '.join(unknown)} after its "
            "Transformer, which are not supported: only a Transformer with its own classifier is"
        )
    names = ", ".join(described.architectures or ())
    if type(described) in MODEL_FOR_CAUSAL_LM_MAPPING and type(described) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise UnsupportedModelError(
            f"{source.place} is a decoder ({names or described.model_type}), which is not supported: encoders are"
        )
    if names and "ForSequenceClassification" not in names:
        raise UnsupportedModelError(
            f"{source.place} is {names}, without a classifier that ranks: `cerberank train teach --base` trains one"
        )


def own_scores(
    network: Any, tokenizer: Any, texts: Sequence[tuple[str, Sequence[str]]], *, longest: int
) -> list[Scores]:
    """The scores, `[n]` a question, that the network gives each pair alone as its own tokenizer makes it.

    Raises UnsupportedModelError for a pair that it cannot read.
    """
    network, scores = network.float().cpu().eval(), []
    for question, candidates in texts:
        odds = []
        for text in candidates:
            # A list of one: transformers reads an empty text alone as if there were no pair.
            read = tokenizer([question], [text], truncation="longest_first", max_length=longest, return_tensors="pt")
            try:
                with torch.no_grad():
                    logits = network(**read).logits[0]
            except (IndexError, RuntimeError) as error:
                tokens = read["input_ids"].shape[1]
                raise UnsupportedModelError(
                    f"the model cannot read a pair of {tokens} tokens ({error}); --max-length sets fewer"
                ) from error
            odds.append(float(logits[-1] - logits[0] if len(logits) == 2 else logits[0]))
        scores.append(probability(np.asarray(odds, dtype=np.float32)))
    return scores


def read_network(source: Source) -> Any:
    """The network. Raises UnsupportedModelError for damaged or missing weights, OSError where no file holds any."""
    try:
        network, loading = AutoModelForSequenceClassification.from_pretrained(
            source.place, revision=source.commit or "main", output_loading_info=True
        )
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UnsupportedModelError(f"{source.place}: its weights cannot be read: {error}") from error
    if missing := sorted(loading["missing_keys"]):
        raise UnsupportedModelError(f"{source.place} is no trained cross-encoder: it lacks {', '.join(missing)}")
    return network
