"""Cross-encoders that have no body here, as repositories hold them. Their weights are random: they rank nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from numpy.typing import NDArray
from onnx import numpy_helper
from tests.tiny import albert_tokenizer, bert_tokenizer, hugging_face_config, roberta_tokenizer, save_tokenizer
from tokenizers import Tokenizer

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
shipped ({inputs}) => (float[n, {labels}] {output}) {{
  words = Gather(table, input_ids)
  kinds = {kinds}
  both = Add(words, kinds)
  inner = MatMul(both, weight)
  bent = Tanh(inner)
  counted = Cast<to = 1>(attention_mask)
  column = Unsqueeze(counted, last)
  kept = {kept}
  total = ReduceSum<keepdims = 0>(kept, middle)
  {output} = Gemm(total, classifier)
}}"""
SHAPES = {"table": (300, 8), "types": (2, 8), "weight": (8, 16)}


def graph_weights(labels: int, seed: int) -> dict[str, NDArray[np.float32]]:
    """The weights of `shipped_graph`."""
    generator = np.random.default_rng(seed)
    weights = {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}
    return weights | {"classifier": generator.normal(0, 0.03, (16, labels)).astype(np.float32)}


def shipped_graph(
    path: Path,
    *,
    labels: int = 1,
    seed: int = 0,
    integers: str = "int64",
    types: bool = True,
    padding_counts: bool = False,
    extra: str = "",
    output: str = "logits",
) -> None:
    """Write a sum over tokens as an ONNX graph with transformers' inputs; with `padding_counts` over padding too."""
    names = ["input_ids", "attention_mask", *["token_type_ids"] * types, *[extra] * bool(extra)]
    model = onnx.parser.parse_model(
        GRAPH.format(
            inputs=", ".join(f"{integers}[n, s] {name}" for name in names),
            labels=labels,
            kinds="Gather(types, token_type_ids)" if types else "Identity(words)",
            kept="Identity(bent)" if padding_counts else "Mul(bent, column)",
            output=output,
        )
    )
    constants = dict(graph_weights(labels, seed)) | {"last": np.asarray([-1]), "middle": np.asarray([1])}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def graph_logits(ids: list[int], types: list[int], *, labels: int = 1, seed: int = 0) -> NDArray[np.float64]:
    """The logits of `shipped_graph` for one pair, in float64."""
    weights = {name: value.astype(np.float64) for name, value in graph_weights(labels, seed).items()}
    both = weights["table"][ids] + weights["types"][types]
    return np.tanh(both @ weights["weight"]).sum(axis=0) @ weights["classifier"]


def save_shipped(folder: Path, *, labels: int = 1, seed: int = 0, padding_counts: bool = False) -> Path:
    """A repository of an ELECTRA with a graph in place of weights; the graph is not an ELECTRA."""
    hugging_face_config("electra", num_labels=labels).save_pretrained(folder)
    save_tokenizer(bert_tokenizer(), folder, model_max_length=64)
    shipped_graph(folder / "onnx" / "model.onnx", labels=labels, seed=seed, padding_counts=padding_counts)
    return folder


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
