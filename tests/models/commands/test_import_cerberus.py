"""`cerberank import` of the checkpoint of CERBERUS's authors: scores are those of transformers' ELECTRA layers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.authors_cerberus import save, twin
from tests.program import program
from tests.tanda import TOKENIZERS, Twin
from tests.tiny import bert_tokenizer, save_cross_encoder, save_tokenizer
from torch import Tensor
from transformers import AutoTokenizer

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs

main = program("import")
TEXTS = ["it was built in paris .", "330 metres", "", "it was built in paris " * 40]


@pytest.mark.parametrize(
    ("shape", "beside"),
    [({"body_layers": 11}, False), ({"head_layers": 2, "heads": 2, "embedding_size": 32}, True)],
)
@torch.inference_mode()
def test_scores_are_those_of_electras_layers(shape: dict[str, int], beside: bool, tmp_path: Path) -> None:
    """B11 3H1 with the tokenizer of the ELECTRA that goes with it, whose config.json names no family; B2 2H2 with an
    embeddings_project, whose folder has a tokenizer.

    Among the pairs are a question that fills more than half of the room, and a candidate that does not fit.
    """
    authors = twin(**shape)
    folder = save(authors.state() | {"embeddings.position_ids": torch.arange(160)[None]}, tmp_path / "authors")
    if beside:
        tokens, options, read = folder, [], AutoTokenizer.from_pretrained
        save_tokenizer(bert_tokenizer(), folder)
    else:
        tokens = Twin("electra").save(tmp_path / "electra")
        options, read = ["--tokenizer", str(tokens)], TOKENIZERS["electra"].from_pretrained
    assert main([str(folder), str(tmp_path / "out"), "--forms", "none", *options]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    assert str(checkpoint.config.architecture) == ("B2 2H2" if beside else "B11 3H1")
    encoding = checkpoint.config.encoding
    assert (encoding.max_length, encoding.truncation, encoding.windows) == (128, "longest_first", "off")
    backend, encoder = open_backend(checkpoint, kind="torch", precision="fp32"), checkpoint.encoder()
    for question in ("how tall ?", "how tall is the tower " * 20):
        wanted = authors.scores(read(tokens), question, TEXTS)
        got = rank_pairs(backend, encoder.encode(question, [Candidate(text=text) for text in TEXTS])).scores
        assert np.abs(got - wanted).max() <= 1e-5
        assert np.ptp(wanted) > 1e-3


def test_a_tokenizer_is_read_without_its_model(tmp_path: Path) -> None:
    """As `save_pretrained` of a tokenizer writes it, without a config.json."""
    folder = save(twin().state(), tmp_path / "authors")
    save_tokenizer(bert_tokenizer(), tmp_path / "tokenizer")
    options = ["--forms", "none", "--tokenizer", str(tmp_path / "tokenizer")]
    assert main([str(folder), str(tmp_path / "out"), *options]) == 0


def without(*names: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: {name: value for name, value in state.items() if not name.startswith(names)}


def replacing(name: str, value: Any) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: state | {name: value}


class Unpickled:
    """An object that is made by calling a function of the system."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: Unpickled(), "cerberus_model.pt cannot be read as weights alone"),
        (list, "cerberus_model.pt is not a state dict"),
        (replacing("version", 1), "cerberus_model.pt is not a state dict"),
        (replacing("final_classifier.dense.weight", torch.ones(2, 2)), "final_classifier.dense.weight belongs to a"),
        (without("cerberus_heads.1.classifier."), "lacks cerberus_heads.1.classifier.dense.bias, cerberus_heads"),
        (without("cerberus_heads.1.layer."), "lacks cerberus_heads.1.layer.0.attention.output.LayerNorm.bias"),
        (without("cerberus_heads."), "lacks cerberus_heads.0.classifier.dense.weight: it has no heads"),
        (without("cerberus_shared_encoder.layer.0."), "lacks cerberus_shared_encoder.layer.0.intermediate.dense.wei"),
        (without("embeddings.word"), "lacks embeddings.word_embeddings.weight"),
        (
            lambda state: {f"module.{name}": value for name, value in state.items()},
            "lacks embeddings.word_embeddings.weight",
        ),
        (replacing("cerberus_heads.0.pooler.weight", torch.ones(2)), "has no place for cerberus_heads.0.pooler.weight"),
        (replacing("embeddings.LayerNorm.bias", torch.ones(2)), "embeddings.LayerNorm.bias has the shape [2]"),
        (replacing("embeddings.word_embeddings.weight", torch.ones(1).expand(10**9, 128)), "tensors would take 512"),
        (replacing("embeddings.word_embeddings.weight", torch.ones(300)), "shape [300], not two sizes"),
        (
            replacing("cerberus_shared_encoder.layer.0.intermediate.dense.weight", torch.ones(64, 100)),
            "100 is not the width of an ELECTRA",
        ),
        (
            replacing("embeddings.word_embeddings.weight", torch.ones(9, 128)),
            "resize_token_embeddings",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    change: Callable[[dict[str, Tensor]], object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the name of the tensor, with nothing written and nothing run."""
    monkeypatch.chdir(tmp_path)
    folder = save(change(twin().state()), tmp_path / "authors")
    save_tokenizer(bert_tokenizer(), folder)
    assert main([str(folder), str(tmp_path / "out"), "--forms", "none"]) == 1
    error = capsys.readouterr().err
    assert f"{folder}" in error
    assert message in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["authors"]


def test_a_wrong_option_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for other models, the tokenizer of another one, a missing tokenizer."""
    folder, other = save(twin().state(), tmp_path / "authors"), save_cross_encoder("bert", tmp_path / "other")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    calls = {
        (str(folder), "--opaque"): "--opaque, --context and --prompt are for other models",
        (str(folder), "--tokenizer", str(tmp_path / "none")): "its tokenizer cannot be read, unless --tokenizer names",
        (str(folder),): "google/electra-base-discriminator",
        (str(other), "--tokenizer", str(other)): "has a tokenizer of its own",
    }
    for (source, *options), message in calls.items():
        assert main([source, str(tmp_path / "out"), *options]) == 1
        assert message in capsys.readouterr().err
