from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tests.tiny import save_cross_encoder

from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.import_model import main
from cerberank_models.encoding import Candidate
from cerberank_models.rank import rank_pairs

TEXTS = ["it was built in paris .", "330 metres", "bees make honey"]


@pytest.mark.parametrize(("family", "labels"), [("albert", 2), ("bert", 1), ("electra", 2), ("roberta", 1)])
def test_an_imported_model_gives_its_own_probabilities(family: str, labels: int, tmp_path: Path) -> None:
    """ONNX fp32 of the checkpoint against Hugging Face's model on the same token ids."""
    source = save_cross_encoder(family, tmp_path / "source", num_labels=labels)
    assert main([str(source), str(tmp_path / "out"), "--precisions", "fp32", "--name", "imported"]) == 0
    checkpoint = read_checkpoint(tmp_path / "out")
    pairs = checkpoint.encoder().encode("how tall ?", [Candidate(text=text) for text in TEXTS])
    got = rank_pairs(open_backend(checkpoint, precision="fp32"), pairs).scores
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    for row, (start, stop) in enumerate(zip(pairs.offsets[:-1], pairs.offsets[1:], strict=True)):
        ids = torch.from_numpy(pairs.token_ids[start:stop]).long()[None]
        types = torch.from_numpy(pairs.type_ids[start:stop]).long()[None]
        with torch.no_grad():
            logits = model(input_ids=ids, token_type_ids=types).logits[0].double()
        difference = logits[0] if labels == 1 else logits[1] - logits[0]
        assert abs(got[row] - torch.sigmoid(difference).item()) <= 1e-4
    assert np.isfinite(got).all()


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
