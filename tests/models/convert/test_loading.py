"""Loading is silent, and an encoder without some of its weights is refused instead of made up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.tiny import hugging_face_config
from transformers.utils import logging

from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.loading import load_encoder, quiet_transformers


def saved(folder: Path, *lacks: str) -> str:
    """A tiny BERT without the weights whose names begin with one of `lacks`."""
    with quiet_transformers():
        transformers.BertModel(hugging_face_config("bert")).save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    left = {name: value for name, value in weights.items() if not name.startswith(lacks)}
    save_file(left, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def test_an_encoder_is_loaded_without_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pooler may be missing; fewer layers leave the others; the switches are as before."""
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    folder = saved(tmp_path, "pooler.")
    network = load_encoder(folder, num_hidden_layers=2)
    assert len(network.encoder.layer) == 2
    wanted = load_file(tmp_path / "model.safetensors")["embeddings.word_embeddings.weight"]
    assert torch.equal(network.embeddings.word_embeddings.weight, wanted)
    assert capsys.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def test_missing_weights_are_refused(tmp_path: Path) -> None:
    """Otherwise transformers would draw them, and noise would be trained or served."""
    folder = saved(tmp_path, "encoder.layer.1.")
    with pytest.raises(UnsupportedModelError, match=r"lacks weights of its encoder: encoder\.layer\.1\..* \d+ more"):
        load_encoder(folder)
