"""Exported graphs: what their weights take. That they compute what the network computes is tested with the backends."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import pytest
from tests.tiny import bert_tokenizer
from tests.tiny import random_ranker as tiny_ranker

from cerberank_models.backends.registry import open_backend, spec_of
from cerberank_models.checkpoint.external_data import external_files
from cerberank_models.checkpoint.folder import ChangedFileError, MissingFileError, copy_checkpoint, read_checkpoint
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.convert.graphs import quiet
from cerberank_models.golden import check_golden


def test_large_weights_lie_in_a_file_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a lowered threshold: the graph holds none, the checkpoint is verified and scores right."""
    monkeypatch.setattr("cerberank_models.convert.graphs.INLINE_BYTES", 1000)
    folder, ranker = tmp_path / "large", tiny_ranker(body_layers=1, heads=1, exits=(), num_hidden_layers=2)
    parity = {"fp32": 1e-5}
    export_checkpoint(
        ranker,
        bert_tokenizer(),
        folder,
        card="",
        version="1",
        source="",
        forms=Forms(precisions=("fp32",), parity=parity),
    )
    checkpoint = read_checkpoint(folder)
    graph = folder / "onnx" / "fp32" / "stage-0.onnx"
    data = graph.with_name("stage-0.onnx.data")
    assert external_files(graph.read_bytes()) == {data.name}
    assert data.stat().st_size > 10_000
    check_golden(open_backend(checkpoint, precision="fp32"), checkpoint, "fp32")
    assert f"onnx/fp32/{data.name}" in spec_of("onnx").files(checkpoint.manifest.files, "fp32")
    other = copy_checkpoint(folder, tmp_path / "copy").path / "onnx" / "fp32" / "stage-0.onnx.data"
    other.write_bytes(other.read_bytes()[:-1] + b"\x00\x01")
    with pytest.raises(ChangedFileError, match=r"stage-0\.onnx\.data"):
        read_checkpoint(tmp_path / "copy")
    other.unlink()
    with pytest.raises(MissingFileError, match=r"stage-0\.onnx\.data"):
        read_checkpoint(tmp_path / "copy")


def talk() -> None:
    logging.getLogger("torch.onnx._internal.exporter._registration").warning("torchvision is not installed")
    logging.getLogger("onnxscript.optimizer").warning("folded")
    warnings.warn("an internal of the exporter", FutureWarning, stacklevel=1)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that loggers show while the test runs."""
    lines: list[str] = []

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    for name in ("torch.onnx", "onnxscript", "cerberank_models.convert.graphs"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [Shown()])
    return lines


def test_nothing_is_shown_of_an_export_that_succeeds(shown: list[str]) -> None:
    """Neither messages nor warnings; afterwards loggers speak as before."""
    with quiet():
        talk()
    assert shown == []
    logging.getLogger("torch.onnx.other").warning("heard")
    assert shown == ["heard"]


def test_everything_is_shown_of_one_that_fails(shown: list[str]) -> None:
    """In its order, before the error goes on."""

    def fail() -> None:
        with quiet():
            talk()
            raise RuntimeError("cannot export")

    with pytest.raises(RuntimeError, match="cannot export"):
        fail()
    assert shown == ["torchvision is not installed", "folded", "FutureWarning: an internal of the exporter"]
