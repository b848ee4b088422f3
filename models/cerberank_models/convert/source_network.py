"""Loads a sequence classifier with transformers: its configuration, its network with all weights, and its scores.

A model that cannot be loaded is rejected with the reason. Code in a model's repository is never run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
)

from cerberank_models.backends.stage_contract import Scores, probability
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.golden_texts import Texts
from cerberank_models.convert.loading import POOLER, load_network, missing_weights
from cerberank_models.convert.modules import ModularHead, ModularNetwork, model_kind, read_modular_head
from cerberank_models.convert.source import CONFIG, Source
from cerberank_models.convert.weight_names import complete, family_of, foreign_weights, listed

READS_ALONE = (
    "a multi-vector encoder, which reads texts one by one: `import` without --opaque makes a ranker of it, "
    "`checkpoint first-stage` the first stage of one"
)
KINDS = {
    "SentenceTransformer": "a bi-encoder, which reads texts one by one: `checkpoint first-stage` makes it the first "
    "stage of a ranker",
    "MultiVectorEncoder": READS_ALONE,
    "ColBERT": READS_ALONE,
    "SparseEncoder": "a sparse encoder, which reads texts one by one; only cross-encoders are ranked with",
}
"""Descriptions of the kinds of sentence-transformers models that are not cross-encoders."""


def read_config(source: Source) -> Any:
    """The configuration, with the family and the class that the names of the weights show if config.json lacks them.

    Raises UnsupportedModelError for a model that needs its repository's code, that reads images, or whose family stays
    open.
    """
    if source.is_cerberus:
        raise UnsupportedModelError(f"{source.place} is a CERBERUS of its authors: `cerberank import` reads it")
    stated = source.optional_json(CONFIG) or {}
    foreign = [name for name in stated.get("architectures") or () if not hasattr(transformers, str(name))]
    coded = UnsupportedModelError(
        f"{source.place} needs Python code of its repository (auto_map in {CONFIG}), which is never run here: only "
        "architectures that transformers itself has can be imported"
    )
    if "auto_map" in stated and foreign:
        raise coded
    if isinstance(stated, dict) and "auto_map" not in stated and not stated.get("model_type"):
        configuration = type(AutoConfig.for_model(family_of(source))).from_dict(stated)
    else:
        try:
            configuration = AutoConfig.from_pretrained(
                source.place, revision=source.commit or "main", trust_remote_code=False
            )
        except ValueError as error:
            if "auto_map" in stated:
                raise coded from error
            raise
    complete(source, configuration)
    if hasattr(configuration, "vision_config") or hasattr(configuration, "audio_config"):
        raise UnsupportedModelError(
            f"{source.place} ({configuration.model_type}) reads more than texts: only these are ranked"
        )
    return configuration


def read_head(source: Source, configuration: Any) -> ModularHead | None:
    """The modules after the encoder of a modular cross-encoder; None for a sequence classifier of transformers.

    `configuration` is the model's `transformers` configuration. Only the head's weights are loaded. Raises
    UnsupportedModelError, with the model's kind, for a model that is not a cross-encoder.
    """
    if (kind := model_kind(source)) in KINDS:
        raise UnsupportedModelError(f"{source.place} is {KINDS[kind]}")
    names = ", ".join(configuration.architectures or ())
    if type(configuration) in MODEL_FOR_CAUSAL_LM_MAPPING and type(configuration) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise UnsupportedModelError(
            f"{source.place} is a decoder ({names or configuration.model_type}), which is not supported: encoders are"
        )
    head = read_modular_head(source)
    if head is None and (unread := foreign_weights(source, configuration)):
        raise UnsupportedModelError(
            f"{source.place} is {names or 'of no class that its ' + CONFIG + ' names'}, and a classifier of "
            f"{configuration.model_type} has no place for {listed(unread)}"
        )
    if head is None and names and "ForSequenceClassification" not in names:
        raise UnsupportedModelError(
            f"{source.place} is {names}, without a classifier that ranks: `cerberank train teach --base` trains one"
        )
    return head


def scores_alone(texts: Texts, log_odds: Callable[[str, str], float]) -> list[Scores]:
    """The scores, `[n]` per question, by the log-odds that a network gives each question and text alone."""
    return [
        probability(np.asarray([log_odds(question, text) for text in candidates], dtype=np.float32))
        for question, candidates in texts
    ]


def source_scores(network: Any, tokenizer: Any, texts: Texts, *, longest: int) -> list[Scores]:
    """The scores, `[n]` per question, that the network gives each pair alone, as made by the model's own tokenizer.

    Raises UnsupportedModelError for a pair that the network cannot read.
    """
    network = network.float().cpu().eval()

    def log_odds(question: str, text: str) -> float:
        # Lists of one item, because transformers takes an empty text for a missing one.
        inputs = tokenizer([question], [text], truncation="longest_first", max_length=longest, return_tensors="pt")
        try:
            with torch.no_grad():
                logits = network(**inputs).logits[0]
        except (IndexError, RuntimeError) as error:
            tokens = inputs["input_ids"].shape[1]
            raise UnsupportedModelError(
                f"the model cannot read a pair of {tokens} tokens ({error}); --max-length sets fewer"
            ) from error
        return float(logits[-1] - logits[0] if len(logits) == 2 else logits[0])

    return scores_alone(texts, log_odds)


def read_network(source: Source, configuration: Any, head: ModularHead | None = None) -> Any:
    """The network by its `configuration` (`read_config`), including the `head` of a modular cross-encoder.

    Raises UnsupportedModelError for damaged or missing weights, and OSError if there is no file of weights.
    """
    network, report = load_network(
        AutoModelForSequenceClassification if head is None else AutoModel,
        source.place,
        config=configuration,
        revision=source.commit or "main",
        ignore_mismatched_sizes=True,  # refused below; transformers' own error names no shape
    )
    if unequal := sorted(report["mismatched_keys"]):
        name, saved, configured = unequal[0]
        raise UnsupportedModelError(
            f"{source.place}: its weights do not fit its config.json: {name} has the shape {list(saved)}, and the "
            f"configuration asks for {list(configured)}; id2label sets the number of a classifier's logits"
        )
    if missing := missing_weights(report, optional=None if head is None else POOLER):
        raise UnsupportedModelError(f"{source.place} is not a trained cross-encoder: it lacks {', '.join(missing)}")
    return network if head is None else ModularNetwork(network, head)
