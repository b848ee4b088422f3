"""The start of pre-training, and the folder that it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.papers.pretraining.networks import save_base
from transformers import AutoModel, AutoModelForMaskedLM

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_papers.pretraining.settings import LossWeights
from cerberank_papers.pretraining.start import GENERATOR, build_start, save_encoder
from cerberank_training.learning.student_network import pretrained_encoder
from cerberank_training.runs.base import open_base

WEIGHTS = LossWeights()


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_the_written_folder_is_the_encoder(family: str, tmp_path: Path) -> None:
    """AutoModel, as `distil` opens it, reads every weight of the trained encoder, with three token types."""
    base = save_base(family, tmp_path / "base")
    start = build_start(open_base(str(base)), WEIGHTS, seed=1, layers=1)
    save_encoder(start, tmp_path / "out")
    network: Any = start.network
    body = (network.discriminator if family == "electra" else network.language).base_model
    read = pretrained_encoder(open_base(str(tmp_path / "out")), layers=None)
    assert read.config.type_vocab_size == 3
    assert read.config.num_hidden_layers == 1
    weights = read.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in body.state_dict().items())
    again = build_start(open_base(str(tmp_path / "out")), WEIGHTS, seed=2)
    assert again.fresh == (("a generator",) if family == "electra" else ())


def test_an_encoder_alone_gets_a_head_tied_to_its_words(tmp_path: Path) -> None:
    """BERT without a head, as sentence encoders are: its layers and pooler stay, the head is named as made anew."""
    base = save_base("bert", tmp_path, head="BertModel")
    start = build_start(open_base(str(base)), WEIGHTS, seed=1)
    assert start.fresh == ("a head for masked language modelling",)
    language: Any = start.network.language
    assert language.get_output_embeddings().weight is language.get_input_embeddings().weight
    source = AutoModel.from_pretrained(base)
    assert torch.equal(language.bert.pooler.dense.weight, source.pooler.dense.weight)
    assert torch.equal(language.bert.encoder.layer[1].output.dense.weight, source.encoder.layer[1].output.dense.weight)


def test_electras_generator_is_narrow_and_shares_embeddings_or_is_given(tmp_path: Path) -> None:
    """A quarter of the discriminator's width on its embeddings; a given one keeps its own where their size differs."""
    base = save_base("electra", tmp_path / "base")
    network: Any = build_start(open_base(str(base)), WEIGHTS, seed=1).network
    assert network.generator.config.hidden_size == network.discriminator.config.hidden_size // 4
    assert network.generator.electra.embeddings is network.discriminator.electra.embeddings
    given = save_base("electra", tmp_path / GENERATOR, head="ElectraForMaskedLM")
    start = build_start(open_base(str(base)), WEIGHTS, seed=1, generator=open_base(str(given)))
    loaded: Any = start.network
    weight = AutoModelForMaskedLM.from_pretrained(given).generator_predictions.dense.weight
    assert start.fresh == ()
    assert torch.equal(loaded.generator.generator_predictions.dense.weight, weight)
    assert loaded.generator.config.type_vocab_size == 3
    assert loaded.generator.electra.embeddings is loaded.discriminator.electra.embeddings
    assert loaded.generator.get_output_embeddings().weight is loaded.discriminator.get_input_embeddings().weight
    config = AutoModelForMaskedLM.from_pretrained(given).config
    config.embedding_size //= 2
    other = AutoModelForMaskedLM.from_config(config)
    other.save_pretrained(tmp_path / "other")
    narrow = open_base(str(tmp_path / "other"))
    apart: Any = build_start(open_base(str(base)), WEIGHTS, seed=1, generator=narrow).network
    words = apart.generator.get_input_embeddings().weight
    assert torch.equal(words, other.get_input_embeddings().weight)


def test_what_cannot_be_pretrained_is_refused(tmp_path: Path) -> None:
    """A generator beside BERT, too many layers."""
    base = open_base(str(save_base("bert", tmp_path)))
    with pytest.raises(UnsupportedModelError, match="a generator belongs to ELECTRA"):
        build_start(base, WEIGHTS, seed=1, generator=base)
    with pytest.raises(UnsupportedModelError, match="has 2 layers, not 3"):
        build_start(base, WEIGHTS, seed=1, layers=3)


@pytest.mark.parametrize("new", ["fresh", "copied"])
def test_new_token_types_begin_as_asked(new: Any, tmp_path: Path) -> None:
    """Copies of the last row, or rows of their own that follow from the seed."""
    base = open_base(str(save_base("bert", tmp_path)))
    tables = [
        build_start(base, WEIGHTS, seed=seed, token_types=new).network.state_dict()[
            "language.bert.embeddings.token_type_embeddings.weight"
        ]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(tables[0], tables[1])
    assert torch.equal(tables[0][1], tables[0][2]) == (new == "copied")
    assert torch.equal(tables[0], tables[2]) == (new == "copied")
