"""Piece `reference`: the same random weights in Hugging Face's classifiers and in the backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cerberank_benchmarks.gpu.lab import Findings, Lab, Problem
from cerberank_benchmarks.gpu.networks import equal_pairs
from cerberank_benchmarks.weights import MAX_LENGTH, head_width
from cerberank_models.config import EncodingConfig
from cerberank_models.convert.from_hugging_face import load_weights, ranker_config
from cerberank_models.encoding import EncodedPairs
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.rank_pairs import rank_pairs

TEXT = (
    "BERT and ELECTRA of the base size in transformers, in fp32 without TF32, against the backend with the same "
    "weights: in fp32, and in half precision with captured graphs. The last row of each shows what half precision "
    "changes in transformers itself. Differences are of probabilities."
)
BOUND = {"fp32": 1e-4, "fp16": 0.02, "bf16": 0.1}
"""Largest differences that do not count as a problem. fp16 and bf16 have 11 and 8 significant bits."""
LAYERS, PAIRS = 12, 64


def run(lab: Lab) -> Findings:
    """A row for each classifier, precision and implementation."""
    from transformers import (  # noqa: PLC0415 - takes seconds, and other pieces do not need it
        BertConfig,
        BertForSequenceClassification,
        ElectraConfig,
        ElectraForSequenceClassification,
    )

    width = lab.sizes.width or 768
    shape: dict[str, Any] = {
        "hidden_size": width,
        "num_hidden_layers": min(LAYERS, lab.sizes.training_layers),
        "num_attention_heads": width // head_width(width),
        "intermediate_size": 4 * width,
        "initializer_range": 0.06,  # large enough that scores differ; otherwise equal results would prove nothing
        "num_labels": 1,
    }
    pairs = equal_pairs(lab, min(PAIRS, lab.sizes.candidates))
    for config, model_class in (
        (BertConfig(**shape), BertForSequenceClassification),
        (ElectraConfig(**shape, embedding_size=width), ElectraForSequenceClassification),
    ):
        torch.manual_seed(lab.seed)
        model = model_class(config).eval()
        networks = [_network(config, model.state_dict()) for _ in range(2)]  # each backend owns one
        expected = _probabilities(model.to(lab.device), pairs)
        ours = {
            ("cerberank", "fp32"): rank_pairs(lab.backend(networks[0], precision="fp32"), pairs).scores,
            ("cerberank, graphs", lab.precision): rank_pairs(
                lab.backend(networks[1], graph_tokens=pairs.tokens), pairs
            ).scores,
            ("transformers", lab.precision): _probabilities(model.to(lab.dtype), pairs),
        }
        for (name, precision), got in ours.items():
            difference = float(np.abs(got - expected).max())
            yield {
                "model": model_class.__name__,
                "by": name,
                "precision": precision,
                "largest difference": difference,
                "spread of scores": float(expected.std()),
            }
            if name != "transformers" and not difference <= BOUND[precision]:
                yield Problem(f"{model_class.__name__} in {precision} differs from transformers by {difference:.2g}")


def _network(config: Any, weights: dict[str, Any]) -> RankingNetwork:
    encoding = EncodingConfig(max_length=MAX_LENGTH, question_length=64)
    network = RankingNetwork(ranker_config(config, name="reference", encoding=encoding, logits=1))
    load_weights(network, weights)
    return network


def _probabilities(model: Any, pairs: EncodedPairs) -> NDArray[np.floating]:
    """The classifier's probabilities; all pairs have the same length."""
    ids = torch.from_numpy(np.stack([pairs.token_ids, pairs.type_ids]).astype(np.int64))
    token_ids, type_ids = ids.reshape(2, len(pairs), -1).to(model.device)
    with torch.inference_mode():
        logits = model(input_ids=token_ids, token_type_ids=type_ids).logits[:, 0]
    return np.asarray(logits.double().sigmoid().cpu())
