"""Opaque networks: a checkpoint of a small graph, and cross-encoders that have no body here, as repositories hold them.

Their weights are random: they rank nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from numpy.typing import NDArray
from onnx import numpy_helper
from tests.tiny import albert_tokenizer, bert_tokenizer, roberta_tokenizer, save_tokenizer
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import probability
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.config import ArchitectureConfig, ExitConfig, RankerConfig
from cerberank_models.convert import graphs
from cerberank_models.convert.golden_texts import GOLDEN_TEXTS, encoded
from cerberank_models.convert.opaque import export_opaque, long_texts, opaque_encoder
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.transformer import OpaqueTransformer, PairTemplate

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
summed (int64[n, s] token_ids, int64[n, s] type_ids, bool[n, s] mask) => (float[n, 1] logits) {{
  words = Gather(table, token_ids)
  kinds = Gather(types, type_ids)
  both = Add(words, kinds)
  inner = MatMul(both, weight)
  bent = Tanh(inner)
  counted = Cast<to = 1>(mask)
  column = Unsqueeze(counted, last)
  kept = {kept}
  total = ReduceSum<keepdims = 0>(kept, middle)
  logits = Gemm(total, classifier)
}}"""
SHAPES = {"table": (300, 8), "types": (2, 8), "weight": (8, 16)}


def graph_weights() -> dict[str, NDArray[np.float32]]:
    """The weights of `own_graph`."""
    generator = np.random.default_rng(0)
    weights = {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}
    return weights | {"classifier": generator.normal(0, 0.03, (16, 1)).astype(np.float32)}


def own_graph(path: Path, *, padding_counts: bool = False) -> None:
    """Write a sum over tokens as a graph with the inputs of stage 0; with `padding_counts` over padding too."""
    kept = "Identity(bent)" if padding_counts else "Mul(bent, column)"
    model = onnx.parser.parse_model(GRAPH.format(kept=kept))
    constants = dict(graph_weights()) | {"last": np.asarray([-1]), "middle": np.asarray([1])}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    graphs.save_graph(model, path)


def graph_logit(ids: NDArray[np.int64], types: NDArray[np.int64]) -> float:
    """The logit of `own_graph` for one pair, in float64."""
    weights = {name: value.astype(np.float64) for name, value in graph_weights().items()}
    both = weights["table"][ids] + weights["types"][types]
    return float((np.tanh(both @ weights["weight"]).sum(axis=0) @ weights["classifier"])[0])


def opaque_config() -> RankerConfig:
    """The configuration of `own_graph`."""
    encoding = TeacherInput(max_length=64).encoding()
    return RankerConfig(
        name="opaque",
        transformer=OpaqueTransformer(
            family="opaque", model_type="sum", vocab_size=300, max_positions=64, type_vocab_size=2
        ),
        architecture=ArchitectureConfig(body_layers=1, heads=0, head_layers=0),
        exits=(ExitConfig(after=1, pooling="first"),),
        encoding=encoding.model_copy(update={"template": PairTemplate("[CLS]", "[SEP]")}),
    )


def write_opaque(
    folder: Path, precisions: Sequence[str] = ("fp32", "int8"), *, padding_counts: bool = False
) -> Checkpoint:
    """The checkpoint of `own_graph`, whose scores are compared with `graph_logit`."""
    config, tokenizer = opaque_config(), bert_tokenizer()
    texts = (*GOLDEN_TEXTS, long_texts(config.encoding.max_length))
    expected = [
        probability(np.asarray([graph_logit(pairs.token_ids[a:b], pairs.type_ids[a:b]) for a, b in places]))
        for pairs in encoded(opaque_encoder(config, tokenizer), texts)
        for places in [pairwise(pairs.offsets.tolist())]
    ]
    export_opaque(
        partial(own_graph, padding_counts=padding_counts),
        config,
        tokenizer,
        folder,
        card="# x\n",
        version="1",
        source="tests",
        precisions=precisions,
        expected=expected,
    )
    return read_checkpoint(folder)


SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "initializer_range": 0.3}


def save_deberta(folder: Path) -> Path:
    """A DeBERTa-v2 of one label with relative positions, as mxbai-rerank v1 is one, and a SentencePiece tokenizer."""
    positions = {"max_position_embeddings": 64, "position_buckets": 16, "pos_att_type": ["p2c", "c2p"]}
    positions |= {"relative_attention": True, "position_biased_input": False, "share_att_key": True}
    sizes = {"vocab_size": 200, "num_hidden_layers": 2, "pooler_hidden_size": 32, "type_vocab_size": 0, "num_labels": 1}
    config = transformers.DebertaV2Config(norm_rel_ebd="layer_norm", **SMALL, **positions, **sizes)
    return _save(config, albert_tokenizer(), folder)


def save_mpnet(folder: Path) -> Path:
    """An MPNet of two labels: relative and absolute positions, which count from the padding token, and no types."""
    sizes = {"vocab_size": 300, "num_hidden_layers": 1, "max_position_embeddings": 66, "num_labels": 2}
    return _save(transformers.MPNetConfig(**SMALL, **sizes), roberta_tokenizer(), folder, types=False)


def _save(config: transformers.PretrainedConfig, tokenizer: Tokenizer, folder: Path, *, types: bool = True) -> Path:
    torch.manual_seed(0)
    transformers.AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    save_tokenizer(tokenizer, folder, types=types, model_max_length=64)
    return folder
