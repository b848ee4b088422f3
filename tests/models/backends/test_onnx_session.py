"""A session runs on the device that was asked for, or none is opened."""

from __future__ import annotations

import pytest

from cerberank_models.backends.onnx_session import check_provider

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def test_a_silent_fall_back_to_the_processor_is_an_error() -> None:
    """ONNX Runtime that lists CUDA and runs on the processor is refused, with what is to be installed."""
    check_provider([CPU], "cpu")
    check_provider([CUDA, CPU], "cuda:1")
    with pytest.raises(RuntimeError, match=r"'cuda' needs .*CUDAExecutionProvider.*onnx-gpu"):
        check_provider([CPU], "cuda")
