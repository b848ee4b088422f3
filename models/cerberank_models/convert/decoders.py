"""Imports decoders that rerank by a token's logit: causal language models of transformers.

The result is a ranker with one stage. Its classifier consists of those rows of the language model's head that belong to
the tokens of the answer; the other rows are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.config import ArchitectureConfig, DenseModule, EncodingConfig, RankerConfig
from cerberank_models.convert.families import ImportMapping, UnsupportedModelError, usual_sizes
from cerberank_models.convert.from_hugging_face import load_weights
from cerberank_models.convert.golden_texts import Texts
from cerberank_models.convert.loading import load_network, missing_weights
from cerberank_models.convert.modules import CLASSIFIER
from cerberank_models.convert.source import Source
from cerberank_models.convert.source_network import scores_alone
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.transformer import DecoderConfig, Family, TransformerConfig

OUTPUT = f"{CLASSIFIER}output.weight"
"""The name of the answers' rows of the language model's head, as of a classifier."""


def _decoder(source: Any, family: Family) -> TransformerConfig:
    """The configuration of the decoder (`network/bodies/causal.py`)."""
    if source.hidden_act != "silu":
        raise UnsupportedModelError(f"activation {source.hidden_act!r} is not supported, only 'silu'")
    rope = source.rope_parameters
    if set(rope) - {"rope_type", "rope_theta"} or rope["rope_type"] != "default":
        raise UnsupportedModelError(f"rope_parameters {rope} are not supported, only a rope_theta")
    if set(source.layer_types) != {"full_attention"}:
        raise UnsupportedModelError("layers with a sliding window are not supported, only with full attention")
    biased = bool(getattr(source, "attention_bias", False))
    return usual_sizes(
        source,
        family,
        epsilon=source.rms_norm_eps,
        decoder=DecoderConfig(
            head_size=getattr(source, "head_dim", None) or source.hidden_size // source.num_attention_heads,
            key_value_heads=source.num_key_value_heads,
            theta=rope["rope_theta"],
            attention_bias=biased or family == "qwen2",
            output_bias=biased,
            query_key_norm=family == "qwen3",
        ),
    )


QWEN = ImportMapping(
    prefix="model.",
    transformer=_decoder,
    activation="gelu",
    embeddings={"embed_tokens.": "tokens."},
    layer=re.compile(r"layers\.(\d+)\.(.*)"),
    layer_names={
        "input_layernorm.": "attention_norm.",
        "self_attn.q_proj.": "query.",
        "self_attn.k_proj.": "key.",
        "self_attn.v_proj.": "value.",
        "self_attn.q_norm.": "query_norm.",
        "self_attn.k_norm.": "key_norm.",
        "self_attn.o_proj.": "attention_output.",
        "post_attention_layernorm.": "feed_norm.",
        "mlp.gate_proj.": "gate.",
        "mlp.up_proj.": "up.",
        "mlp.down_proj.": "down.",
    },
    output_norm="norm.",
    classifier={},
    unused=re.compile(r"^lm_head\.|rotary_emb\.inv_freq$"),
)
MAPPINGS: Mapping[Family, ImportMapping] = MappingProxyType({"qwen2": QWEN, "qwen3": QWEN})
"""The mapping of each decoder, by `model_type` of its `transformers` configuration, which is also the family's name."""


def decoder_config(configuration: Any, *, name: str, encoding: EncodingConfig) -> RankerConfig:
    """The ranker's configuration from a decoder's `transformers` configuration, with the prompt of `encoding`.

    Raises UnsupportedModelError for a decoder of a family without an entry in `MAPPINGS`.
    """
    if configuration.model_type not in MAPPINGS or encoding.prompt is None:
        raise UnsupportedModelError(
            f"{name} is a decoder ({configuration.model_type}), and only {', '.join(MAPPINGS)} have layers here"
        )
    transformer = MAPPINGS[configuration.model_type].transformer(configuration, configuration.model_type)
    logits: Literal[1, 2] = 1 if encoding.prompt.no is None else 2
    return RankerConfig(
        name=name,
        transformer=transformer,
        architecture=ArchitectureConfig(
            body_layers=transformer.layers,
            heads=1,
            head_layers=0,
            classifier_pooling="last",
            classifier_logits=logits,
            classifier_modules=(DenseModule(width=logits, bias=False),),
        ),
        encoding=encoding,
    )


def read_decoder(source: Source) -> Any:
    """The causal language model in float32. Raises UnsupportedModelError for damaged or missing weights."""
    try:
        network, report = load_network(
            AutoModelForCausalLM, source.place, revision=source.commit or "main", dtype=torch.float32
        )
    except OSError as error:
        raise UnsupportedModelError(f"{source.place}: its weights cannot be read: {error}") from error
    if missing := missing_weights(report):
        raise UnsupportedModelError(f"{source.place} lacks {', '.join(missing)}")
    return network.eval()


def decoder_ranker(config: RankerConfig, network: Any, answers: Sequence[int]) -> RankingNetwork:
    """The ranker with the weights of the language model `network`, in the same memory.

    `answers` are the ids of the answer's tokens, which select the classifier's rows. Raises UnsupportedModelError with
    the names of all weights of the model that the ranker has no place for, and of the ranker that the model lacks.
    """
    with torch.device("meta"):
        ranker = RankingNetwork(config)
    prompt = config.encoding.prompt
    if prompt is None:
        raise ValueError(f"{config.name} has no prompt")
    rows = network.get_output_embeddings().weight.detach()[list(answers)]
    weights = {**network.state_dict(), OUTPUT: rows / prompt.divisor}
    load_weights(ranker, weights, names=MAPPINGS[config.body.family], assign=True)
    return ranker.eval()


def decoder_scores(
    network: Any, encoder: PairEncoder, texts: Texts, *, answers: Sequence[int], divisor: float
) -> list[Scores]:
    """The scores, `[n]` per question, that the language model gives the encoder's pairs, each pair alone."""

    def log_odds(question: str, text: str) -> float:
        ids = torch.from_numpy(encoder.encode(question, [Candidate(text=text)]).token_ids.astype(np.int64))[None]
        with torch.no_grad():
            logits = network(input_ids=ids, logits_to_keep=1, use_cache=False).logits[0, -1, list(answers)]
        return float(logits[-1] - (logits[0] if len(answers) == 2 else 0.0)) / divisor

    return scores_alone(texts, log_odds)
