"""`cerberank checkpoint weights` makes a checkpoint that can be trained further out of one that can only be served."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.first_stages import without
from tests.program import program

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands import weights
from cerberank_models.convert.checkpoint import ParityError


def test_a_checkpoint_of_graphs_gets_weights(
    other_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is printed and stands in card and manifest; scores further away than a form may be are refused."""
    monkeypatch.setitem(weights.PARITY, "int8", 1.0)  # random weights are quantised badly
    monkeypatch.setattr(weights, "read_back", lambda *_: load_ranker(read_checkpoint(other_checkpoint)))
    revise_checkpoint(read_checkpoint(other_checkpoint), tmp_path / "whole", version="2", files={"run.json": b"{}"})
    graphs = without(read_checkpoint(tmp_path / "whole"), tmp_path / "graphs", "model.safetensors")
    assert program("checkpoint weights")([str(graphs), str(tmp_path / "out")]) == 0
    made = read_checkpoint(tmp_path / "out")
    agreement = weights.measure_agreement(read_checkpoint(graphs), "int8", load_ranker(made))
    assert 0 < agreement.difference == made.manifest.metrics["read_back_difference"]
    assert 0 < agreement.ordered <= agreement.pairs == 31
    assert str(agreement) in capsys.readouterr().out
    card = (made.path / "README.md").read_text()
    assert card.startswith("# random")
    assert "dequantised: fp32 numbers of int8's resolution. Against the scores that\nrandom-tiny 2 records" in card
    assert str(agreement) in card
    assert (made.path / "run.json").read_bytes() == b"{}"
    assert (made.manifest.version, made.precisions) == ("2-from-int8", ())
    monkeypatch.setitem(weights.PARITY, "int8", agreement.difference / 2)
    with pytest.raises(ParityError):
        weights.measure_agreement(read_checkpoint(graphs), "int8", load_ranker(made))


def test_what_has_weights_is_refused(tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 1, no folder; the same for a folder that is there already."""
    assert program("checkpoint weights")([str(tiny_checkpoint), str(tmp_path / "out")]) == 1
    assert "has model.safetensors: there is nothing to read back" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert program("checkpoint weights")([str(tiny_checkpoint), str(tmp_path)]) == 1
    assert "a checkpoint is never overwritten" in capsys.readouterr().err
