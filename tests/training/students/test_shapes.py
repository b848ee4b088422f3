"""Students before their first step: the shapes of the paper, bases that fit, bases that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from tests.tiny import ENCODING, random_pairs, save_cross_encoder

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.config import ExitConfig
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.hugging_face import ranker_config
from cerberank_models.network.ranker import Ranker
from cerberank_training.students.recipes import RECIPES
from cerberank_training.students.shapes import StudentShape, build_student


@pytest.mark.parametrize(
    ("recipe", "millions"),
    [("electra-base-b11-3h1", 124.9), ("electra-base-b10-3h2", 139.0), ("electra-base-b8-3h4", 167.4)],
)
def test_the_papers_shapes_have_the_papers_sizes(recipe: str, millions: float) -> None:
    """CERBERUS table 4 prints 124 M, 139 M and 169 M parameters (it is 167.4 M); counted without allocating."""
    shape = RECIPES[recipe]().shape
    base = transformers.ElectraConfig(
        embedding_size=768, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
    )
    with torch.device("meta"):
        ranker = Ranker(ranker_config(base, name=shape.name, body_layers=shape.body_layers, heads=shape.heads))
    assert sum(parameter.numel() for parameter in ranker.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    ("heads", "body_layers", "millions"),
    [(1, 12, 11.7), (3, 12, 12.9), (3, 11, 34.1)],
    ids=["base", "B12 3H0", "B11 3H1"],
)
def test_albert_base_has_its_own_size(heads: int, body_layers: int, millions: float) -> None:
    """CERBERUS table 2 prints 11 M: the shared layer is counted once; heads with a layer have a copy of it each."""
    base = transformers.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
    with torch.device("meta"):
        ranker = Ranker(ranker_config(base, name="albert-base", body_layers=body_layers, heads=heads))
    assert sum(parameter.numel() for parameter in ranker.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_every_head_starts_from_the_bases_last_layers(tmp_path: Path) -> None:
    """B3 2H1 of four layers: equal layers, classifiers of different seeds, the same for the same seed."""
    base = save_cross_encoder("electra", tmp_path)
    shape = StudentShape(name="s", body_layers=3, heads=2, exits=(ExitConfig(after=1),), encoding=ENCODING)
    first, again = (build_student(shape, str(base), seed=1, dropout=0.0).ranker.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert torch.equal(first["heads.0.layers.0.up.weight"], first["heads.1.layers.0.up.weight"])
    assert not torch.equal(first["heads.0.classifier.dense.weight"], first["heads.1.classifier.dense.weight"])


def test_heads_on_albert_have_a_copy_of_the_shared_layer_each(tmp_path: Path) -> None:
    """B2 2H2 of four depths: body and heads begin with the base's one layer, and train apart; an exit is within."""
    base = save_cross_encoder("albert", tmp_path)
    shape = StudentShape(name="s", body_layers=2, heads=2, exits=(ExitConfig(after=1),), encoding=ENCODING)
    ranker = build_student(shape, str(base), seed=1, dropout=0.0).ranker
    state, source = ranker.state_dict(), transformers.AutoModel.from_pretrained(base).state_dict()
    shared = source["encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"]
    places = ("body.0", "heads.0.layers.0", "heads.1.layers.0")
    assert all(torch.equal(state[f"{place}.up.weight"], shared) for place in places)
    pairs = random_pairs([5, 9])
    logits = ranker(*map(torch.from_numpy, (pairs.token_ids, pairs.type_ids, pairs.offsets)))
    torch.autograd.backward(logits[:, 0].sum())
    reached = [ranker.get_parameter(f"{place}.up.weight").grad is not None for place in places]
    assert reached == [True, True, True]
    assert not ranker.get_parameter("heads.1.layers.0.up.weight").grad.any()  # type: ignore[union-attr]


def test_a_checkpoint_learns_on(tiny_checkpoint: Path) -> None:
    """Body, heads and common exits are taken over, missing heads copy the first, new exits are random."""
    shape = StudentShape(
        name="on", body_layers=3, heads=4, exits=(ExitConfig(after=2), ExitConfig(after=3)), encoding=ENCODING
    )
    student = build_student(shape, str(tiny_checkpoint), seed=5, dropout=0.0)
    old, new = load_ranker(read_checkpoint(tiny_checkpoint)).state_dict(), student.ranker.state_dict()
    assert torch.equal(new["body.2.up.weight"], old["body.2.up.weight"])
    assert torch.equal(new["heads.1.classifier.dense.weight"], old["heads.1.classifier.dense.weight"])
    assert torch.equal(new["heads.3.classifier.dense.weight"], old["heads.0.classifier.dense.weight"])
    assert torch.equal(new["exits.0.output.weight"], old["exits.1.output.weight"])
    assert student.ranker.config.exits == shape.exits
    with pytest.raises(UnsupportedModelError, match="B3 3H1"):
        build_student(
            StudentShape(name="s", body_layers=2, heads=1, encoding=ENCODING), str(tiny_checkpoint), seed=1, dropout=0.0
        )


def test_a_student_may_have_the_bases_first_layers_alone(tmp_path: Path) -> None:
    """B1 1H1 of four layers: the first two, unchanged; more than the base has is refused."""
    base = save_cross_encoder("bert", tmp_path)
    shape = StudentShape(name="s", layers=2, body_layers=1, heads=1, encoding=ENCODING)
    half = build_student(shape, str(base), seed=1, dropout=0.0).ranker.state_dict()
    whole = build_student(
        replace(shape, layers=None, body_layers=3), str(base), seed=1, dropout=0.0
    ).ranker.state_dict()
    assert torch.equal(half["body.0.up.weight"], whole["body.0.up.weight"])
    assert torch.equal(half["heads.0.layers.0.up.weight"], whole["body.1.up.weight"])
    with pytest.raises(UnsupportedModelError, match="4 layers, not 5"):
        build_student(replace(shape, layers=5), str(base), seed=1, dropout=0.0)
