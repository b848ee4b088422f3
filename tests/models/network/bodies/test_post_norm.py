from __future__ import annotations

import pytest
from tests.tiny import random_ranker

LINEAR = ("query", "key", "value", "attention_output", "attention_norm", "up", "down", "output_norm")


def names(prefix: str, modules: tuple[str, ...]) -> list[str]:
    return [f"{prefix}.{module}.{kind}" for module in modules for kind in ("weight", "bias")]


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_the_checkpoint_format_names_every_weight_as_ever(family: str) -> None:
    """The list of keys is fixed, so that earlier and later versions can read each other's checkpoints."""
    expected = [f"embeddings.{table}.weight" for table in ("tokens", "positions", "types")]
    expected += names("embeddings", ("norm", "project") if family == "electra" else ("norm",))
    for layer in range(2):
        expected += names(f"body.{layer}", LINEAR)
    expected += names("exits.0", ("dense.0", "dense.1", "output"))
    for head in range(2):
        for layer in range(2):
            expected += names(f"heads.{head}.layers.{layer}", LINEAR)
        expected += names(f"heads.{head}.classifier", ("dense", "output"))
    ranker = random_ranker(family=family, body_layers=2, heads=2, exits=(1,))
    assert list(ranker.state_dict()) == expected
    assert [name for name, _ in ranker.named_parameters()] == expected
