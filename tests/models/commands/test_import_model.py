from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.contextual import save_contextual, segments_score
from tests.tiny import save_cross_encoder

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.import_model import import_model, main
from cerberank_models.encoding import Candidate, EncodedPairs
from cerberank_models.importing.families import UnsupportedModelError
from cerberank_models.importing.teacher_input import TeacherInput
from cerberank_models.rank import rank_pairs

TEXTS = ["it was built in paris .", "330 metres", "bees make honey"]


MEAN = {"classifier_pooling": "mean"}


@pytest.mark.parametrize(
    ("family", "labels", "changes"),
    [
        ("albert", 2, {}),
        ("bert", 1, {}),
        ("distilbert", 1, {}),
        ("electra", 2, {}),
        ("modernbert", 1, {}),
        ("modernbert", 2, MEAN),
        ("roberta", 1, {}),
        ("xlm-roberta", 1, {}),
    ],
)
def test_an_imported_model_gives_its_own_probabilities(
    family: str, labels: int, changes: dict[str, object], tmp_path: Path
) -> None:
    """ONNX fp32 of the checkpoint against Hugging Face's model on what its own tokenizer gives."""
    source = save_cross_encoder(family, tmp_path / "source", num_labels=labels, **changes)
    assert main([str(source), str(tmp_path / "out"), "--precisions", "fp32", "--name", "imported"]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    pairs = checkpoint.encoder().encode("how tall ?", [Candidate(text=text) for text in TEXTS])
    got = rank_pairs(open_backend(checkpoint, precision="fp32"), pairs).scores
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    for row, text in enumerate(TEXTS):
        inputs = tokenizer("how tall ?", text, return_tensors="pt") if family != "roberta" else _ids(pairs, row)
        assert inputs["input_ids"][0].tolist() == _ids(pairs, row)["input_ids"][0].tolist()
        with torch.no_grad():
            logits = model(**inputs).logits[0].double()
        difference = logits[0] if labels == 1 else logits[1] - logits[0]
        assert abs(got[row] - torch.sigmoid(difference).item()) <= 1e-5
    assert got.std() > 1e-3


def _ids(pairs: EncodedPairs, row: int) -> dict[str, torch.Tensor]:
    """The tokens of one pair; `tests.tiny` gives RoBERTa's tokenizer no template for pairs."""
    return {"input_ids": torch.from_numpy(pairs.token_ids[pairs.offsets[row] : pairs.offsets[row + 1]]).long()[None]}


@pytest.mark.parametrize("family", ["distilbert", "modernbert", "xlm-roberta"])
def test_int8_passes_the_gate(family: str, tmp_path: Path) -> None:
    """The export compares the int8 form with the network before it writes the folder."""
    source = save_cross_encoder(family, tmp_path / "source", num_labels=1)
    assert main([str(source), str(tmp_path / "out"), "--precisions", "int8"]) == 0
    assert read_checkpoint(tmp_path / "out").precisions == ("int8",)


def test_albert_keeps_its_size(tmp_path: Path) -> None:
    """The weights file holds each of the source's weights once; int8 passes the export's parity check."""
    source = save_cross_encoder("albert", tmp_path / "source", num_labels=2)
    assert main([str(source), str(tmp_path / "out"), "--precisions", "int8"]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    assert str(checkpoint.config.architecture) == "B4 1H0"
    assert checkpoint.weights is not None
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    held = sum(value.numel() for value in load_file(checkpoint.weights).values())
    assert held == sum(parameter.numel() for parameter in model.parameters())


def test_a_model_with_three_labels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the reason on standard error, no folder."""
    source = save_cross_encoder("bert", tmp_path / "source", num_labels=3)
    assert main([str(source), str(tmp_path / "out")]) == 1
    assert "3 labels" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", ["bert", "electra", "roberta"])
def test_a_third_segment_has_its_own_token_type(family: str, tmp_path: Path) -> None:
    """Torch, ONNX fp32 and int8 of a contextual teacher against Hugging Face's model on `q s c` with types 0, 1, 2."""
    source = save_contextual(family, tmp_path / "source")
    precisions = ("fp32", "int8") if family == "bert" else ("fp32",)
    assert main([str(source), str(tmp_path / "out"), "--name", "c", "--precisions", ",".join(precisions)]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    assert checkpoint.config.encoding == TeacherInput(max_length=60, context=True).encoding()
    assert checkpoint.config.transformer.type_vocab_size == 3
    question, candidates = "how tall ?", [Candidate(text="a b", previous="c d", next="e"), Candidate(text="built")]
    texts = [[question, "a b", "c d e"], [question, "built", ""]]
    own, shared = (
        np.asarray([segments_score(source, each, types) for each in texts]) for types in ([0, 1, 2], [0, 1, 1])
    )
    pairs = checkpoint.encoder().encode(question, candidates)
    bounds = {"fp32": 1e-4, "int8": 0.15}
    for kind, precision in (("torch", "fp32"), *(("onnx", each) for each in precisions)):
        got = rank_pairs(open_backend(checkpoint, kind=kind, precision=precision), pairs).scores
        assert np.abs(got - own).max() <= bounds[precision], (kind, precision)
    assert np.abs(own - shared).max() > 10 * bounds["fp32"]


def test_context_of_a_model_without_a_file_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--context` of any classifier; a teacher whose file says that it reads none is refused."""
    source = save_cross_encoder("bert", tmp_path / "source")
    assert main([str(source), str(tmp_path / "out"), "--name", "c", "--context", "--precisions", ""]) == 0
    assert read_checkpoint(tmp_path / "out").config.encoding.segments == 3
    TeacherInput(max_length=32).write(source)
    assert main([str(source), str(tmp_path / "pair"), "--name", "c", "--precisions", ""]) == 0
    assert read_checkpoint(tmp_path / "pair").config.encoding == TeacherInput(max_length=32).encoding()
    assert main([str(source), str(tmp_path / "again"), "--context"]) == 1
    assert "does not read context" in capsys.readouterr().err


def test_an_encoder_without_a_classifier_is_refused(tmp_path: Path) -> None:
    """Hugging Face would give it a random classifier."""
    save_cross_encoder("bert", tmp_path / "source")
    described = transformers.AutoConfig.from_pretrained(tmp_path / "source")
    transformers.AutoModel.from_config(described).save_pretrained(tmp_path / "source")
    with pytest.raises(UnsupportedModelError, match=r"no trained cross-encoder: it lacks classifier\.bias"):
        import_model(str(tmp_path / "source"), tmp_path / "out", name="x", precisions=())
    assert not (tmp_path / "out").exists()
