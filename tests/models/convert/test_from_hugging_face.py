from __future__ import annotations

import pytest
import torch
import transformers
from tests.tiny import cross_encoder, hugging_face_config

from cerberank_models.config import EncodingConfig
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.from_hugging_face import (
    load_weights,
    ranker_config,
    transformer_config,
)
from cerberank_models.network.ranking_network import RankingNetwork

ENCODING = EncodingConfig(max_length=48, question_length=16)


def fresh(family: str = "bert") -> tuple[RankingNetwork, dict[str, torch.Tensor]]:
    model = cross_encoder(family)
    return RankingNetwork(ranker_config(model.config, name="copy", encoding=ENCODING)), dict(model.state_dict())


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("bert.encoder.layer.1.output.dense.bias", None, r"body\.1\.down\.bias"),
        ("bert.encoder.layer.0.adapter.weight", torch.zeros(1), "adapter"),
        ("classifier.weight", torch.zeros(3, 32), r"classifier\.weight \(3, 32\)"),
    ],
    ids=["missing", "surplus", "shape"],
)
def test_weights_that_do_not_fit_are_named(name: str, value: torch.Tensor | None, named: str) -> None:
    """Every parameter needs a source of its shape, and every weight a place."""
    ranker, weights = fresh()
    changed = {other: weight for other, weight in weights.items() if other != name}
    with pytest.raises(UnsupportedModelError, match=named):
        load_weights(ranker, changed if value is None else changed | {name: value})


def test_an_encoder_without_classifier_fills_body_and_heads() -> None:
    """Layers b..n-1 go to every head; classifiers keep their own initialisation."""
    encoder = transformers.AutoModel.from_config(hugging_face_config("bert"))
    ranker = RankingNetwork(ranker_config(encoder.config, name="student", body_layers=3, heads=3, encoding=ENCODING))
    load_weights(ranker, encoder.state_dict(), fresh_classifier=True)
    last = encoder.state_dict()["encoder.layer.3.output.dense.weight"]
    for head in ranker.heads:
        assert torch.equal(head.get_parameter("layers.0.down.weight"), last)


LOCAL = "sliding_attention"


def modern(**changes: object) -> transformers.PretrainedConfig:
    return hugging_face_config("modernbert", **changes)


@pytest.mark.parametrize("every", [1, 2, 3, 9])
def test_modernberts_global_layers_come_at_regular_distances(every: int) -> None:
    """Read from the list of all layers, also when fewer of them are used."""
    kinds = ["sliding_attention" if index % every else "full_attention" for index in range(4)]
    described = modern(layer_types=kinds)
    described.num_hidden_layers = 2  # as `from_pretrained(..., num_hidden_layers=2)` leaves it
    config = transformer_config(described).pre_norm
    assert [config.window_of(depth) for depth in range(4)] == [4 if kind == LOCAL else None for kind in kinds]
    assert (config.theta_of(0), config.global_theta, config.local_theta) == (160_000, 160_000, 10_000)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            transformers.DebertaV2Config(),
            "'deberta-v2' is not one of albert, bert, distilbert, electra, modernbert, roberta, xlm-roberta",
        ),
        (transformers.DistilBertConfig(activation="relu"), "relu"),
        (modern(hidden_activation="silu"), "hidden_activation 'silu'"),
        (modern(classifier_activation="relu"), "classifier_activation 'relu'"),
        (modern(layer_types=[LOCAL, "full_attention", LOCAL, LOCAL]), r"full_attention in \[1\]"),
        (modern(layer_types=["full_attention", LOCAL, "full_attention", "full_attention"]), r"\[0, 2, 3\]"),
        (modern(rope_parameters={LOCAL: {"rope_type": "linear", "factor": 2.0}}), "rope_parameters .*linear"),
        (transformers.BertConfig(hidden_act="relu"), "relu"),
        (transformers.AlbertConfig(num_hidden_groups=2), "num_hidden_groups 2"),
        (transformers.AlbertConfig(inner_group_num=3), "inner_group_num 3"),
        (transformers.AlbertConfig(hidden_act="gelu"), "'gelu' is not supported, only ALBERT's 'gelu_new'"),
        (transformers.AlbertConfig(embedding_size=4096), "embedding_size equal to hidden_size"),
    ],
)
def test_unsupported_models_say_why(config: transformers.PretrainedConfig, message: str) -> None:
    """Nothing is computed approximately."""
    with pytest.raises(UnsupportedModelError, match=message):
        transformer_config(config)
