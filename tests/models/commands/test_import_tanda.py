"""`cerberank import` of the folders of TANDA's and CERBERUS's authors: scores are those of transformers' layers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.program import program
from tests.tanda import TOKENIZERS, Twin
from torch import Tensor

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_models.rank_pairs import rank_pairs

main = program("import")
TEXTS = ["it was built in paris .", "330 metres", "", "it was built in paris " * 40]
CUT = ("--forms", "none", "--max-length", "128", "--windows", "off")


@pytest.mark.parametrize(
    ("family", "stated"),
    [
        ("bert", {}),
        ("roberta", {}),
        ("roberta", {"architectures": ["RobertaForAnswerSelection"], "model_type": "roberta"}),
        ("electra", {"architectures": ["TandaElectra"], "model_type": "electra"}),
    ],
)
def test_scores_are_those_of_the_layers(family: str, stated: dict[str, object], tmp_path: Path) -> None:
    """Without a family or a class in config.json, and with a class of the authors' own."""
    authors = Twin(family, **stated)
    folder = authors.save(tmp_path / "ckpt")
    assert main([str(folder), str(tmp_path / "out"), *CUT]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    assert (checkpoint.config.transformer.family, str(checkpoint.config.architecture)) == (family, "B3 1H1")
    assert (checkpoint.config.encoding.max_length, checkpoint.config.encoding.windows) == (128, "off")
    backend, encoder = open_backend(checkpoint, kind="torch", precision="fp32"), checkpoint.encoder()
    tokenizer = TOKENIZERS[family].from_pretrained(folder)
    for question in ("how tall ?", "how tall is the tower " * 20):
        wanted = authors.scores(tokenizer, question, TEXTS)
        got = rank_pairs(backend, encoder.encode(question, [Candidate(text=text) for text in TEXTS])).scores
        assert np.abs(got - wanted).max() <= 1e-5
        assert np.ptp(wanted) > 1e-3


class Unpickled:
    """An object that is made by calling a function of the system."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("unpickled",)


def without(*names: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: {name: value for name, value in state.items() if not name.startswith(names)}


def renamed(old: str, new: str) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: {name.replace(old, new): value for name, value in state.items()}


def adding(name: str, value: object) -> Callable[[dict[str, Tensor]], object]:
    return lambda state: state | {name: value}


def without_vocabulary(folder: Path) -> Path:
    """RoBERTa's weights, which may be XLM-RoBERTa's."""
    (Twin("roberta").save(folder) / "vocab.json").unlink()
    return folder


def saving(change: Callable[[dict[str, Tensor]], object], family: str) -> Callable[[Path], Path]:
    stated = {"architectures": ["TandaElectra"], "model_type": "electra"} if family == "electra" else {}
    authors = Twin(family, **stated)
    return lambda folder: authors.save(folder, change(authors.state()))


@pytest.mark.parametrize(
    ("save", "message"),
    [
        (
            saving(renamed("bert.", ""), "bert"),
            "nor do its weights (classifier.bias, classifier.weight, embeddings.Lay",
        ),
        (saving(renamed("bert.", "luke."), "bert"), 'add "model_type": "bert", or what it is, to that file'),
        (
            without_vocabulary,
            "nor do its weights (classifier.dense.bias, classifier.dense.weight, classifier.out_proj.",
        ),
        (saving(adding("step", Unpickled()), "roberta"), "pytorch_model.bin cannot be read as weights alone"),
        (saving(adding("step", 1), "roberta"), "pytorch_model.bin is not a state dict"),
        (
            saving(without("classifier.out_"), "roberta"),
            "it lacks classifier.out_proj.bias, classifier.out_proj.weight",
        ),
        (
            saving(adding("classifier.gate.weight", torch.ones(2)), "electra"),
            "is TandaElectra, and a classifier of electra has no place for classifier.gate.weight",
        ),
        (saving(without("classifier."), "electra"), "is TandaElectra, without a classifier that ranks"),
    ],
)
def test_a_folder_that_does_not_show_its_kind_is_refused(
    save: Callable[[Path], Path],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the names of weights, with nothing written and nothing run."""
    monkeypatch.chdir(tmp_path)
    assert main([str(save(tmp_path / "ckpt")), str(tmp_path / "out"), "--forms", "none"]) == 1
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt"]


def test_an_archive_and_a_folder_around_the_weights_are_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are downloaded, and as tar unpacks them."""
    folder = Twin("bert").save(tmp_path / "tanda" / "ckpt")
    (tmp_path / "tanda.tar").touch()
    for source, message in (
        (tmp_path / "tanda.tar", "is a file: unpack it"),
        (folder.parent, f"did you mean {folder}?"),
    ):
        assert main([str(source), str(tmp_path / "out")]) == 1
        assert message in capsys.readouterr().err
