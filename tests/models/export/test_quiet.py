"""What an exporter says is held back, and shown when it fails."""

from __future__ import annotations

import logging
import warnings

import pytest

from cerberank_models.export.quiet import quiet


def talk() -> None:
    logging.getLogger("torch.onnx._internal.exporter._registration").warning("torchvision is not installed")
    logging.getLogger("onnxscript.optimizer").warning("folded")
    warnings.warn("an internal of the exporter", FutureWarning, stacklevel=1)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What loggers show while the test runs."""
    lines: list[str] = []

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    for name in ("torch.onnx", "onnxscript", "cerberank_models.export.quiet"):
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
