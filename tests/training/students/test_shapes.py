"""Students before their first step: the shapes of the paper, bases that fit, bases that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
import transformers
from tests.tiny import ENCODING, save_cross_encoder

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.config import EncodingConfig, ExitConfig
from cerberank_models.encoding import Candidate
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
    """CERBERUS table 4 gives 124 M, 139 M and 169 M parameters; counted without allocating them."""
    shape = RECIPES[recipe]().shape
    base = transformers.ElectraConfig(
        embedding_size=768, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072
    )
    with torch.device("meta"):
        ranker = Ranker(ranker_config(base, name=shape.name, body_layers=shape.body_layers, heads=shape.heads))
    assert sum(parameter.numel() for parameter in ranker.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_every_head_starts_from_the_bases_last_layers(tmp_path: Path) -> None:
    """B3 2H1 of four layers: equal layers, classifiers of different seeds, the same for the same seed."""
    base = save_cross_encoder("electra", tmp_path)
    shape = StudentShape(name="s", body_layers=3, heads=2, exits=(ExitConfig(after=1),), encoding=ENCODING)
    first, again = (build_student(shape, str(base), seed=1, dropout=0.0).ranker.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert torch.equal(first["heads.0.layers.0.up.weight"], first["heads.1.layers.0.up.weight"])
    assert not torch.equal(first["heads.0.classifier.dense.weight"], first["heads.1.classifier.dense.weight"])


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


@pytest.mark.parametrize("new", ["fresh", "copied"])
def test_a_third_segment_may_get_a_token_type(
    new: Literal["fresh", "copied"], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """The base's table grows to three rows; a checkpoint, whose table stays, is refused."""
    encoding = EncodingConfig(max_length=48, question_length=16, segments=3)
    shape = StudentShape(name="s", body_layers=3, heads=1, encoding=encoding, token_types=new)
    base = save_cross_encoder("bert", tmp_path)
    student = build_student(shape, str(base), seed=1, dropout=0.0)
    rows = student.ranker.state_dict()["embeddings.types.weight"]
    assert len(rows) == student.ranker.config.transformer.type_vocab_size == 3
    assert torch.equal(rows[1], rows[2]) == (new == "copied")
    assert set(student.encoder().encode("how", [Candidate(text="a", previous="b")]).type_ids) == {0, 1, 2}
    with pytest.raises(UnsupportedModelError, match="keeps its table of token types"):
        build_student(shape, str(tiny_checkpoint), seed=1, dropout=0.0)
