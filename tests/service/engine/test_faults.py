"""The meaning of errors of PyTorch, ONNX Runtime and CUDA's libraries, by their real messages."""

from __future__ import annotations

import re

import pytest
import torch

from cerberank_service.engine.faults import LONGEST_TEXT, RULES, DeviceFailedError, Fault, fault_of, text_of

ADVICE = """
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
"""The text that PyTorch appends to every CUDA error (c10/cuda/CUDAException.cpp)."""


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB"),
        torch.AcceleratorError("CUDA error: out of memory" + ADVICE),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`" + ADVICE),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`" + ADVICE),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to"),
        RuntimeError("Status Message: Failed to allocate memory for requested buffer of size 1073741824"),
        RuntimeError("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=a ; file=b"),
        RuntimeError("CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaMalloc((void**)&p, size);"),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_too_little_memory(error: Exception) -> None:
    """These batches may fit in halves."""
    assert fault_of(error) is Fault.MEMORY


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError(
            "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs"
        ),
        RuntimeError("CUDA error: an illegal memory access was encountered" + ADVICE),
        RuntimeError("CUDA error: unspecified launch failure" + ADVICE),
        RuntimeError("CUDA error: uncorrectable ECC error encountered" + ADVICE),
        RuntimeError("CUDA error: operation not supported on global/shared address space" + ADVICE),
        RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable" + ADVICE),
        RuntimeError("CUDA error: unknown error" + ADVICE),
        RuntimeError("CUDA driver error: unknown error"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`" + ADVICE),
        torch.AcceleratorError("something that a later version says"),
        RuntimeError("[ONNXRuntimeError] : 1 : FAIL : CUDA failure 700: an illegal memory access was encountered ;"),
        RuntimeError("CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0"),
        DeviceFailedError("whatever"),
    ],
)
def test_a_device_that_has_failed(error: Exception) -> None:
    """After these every call of the process fails."""
    assert fault_of(error) is Fault.DEVICE


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a question that the model does not take"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        torch.AcceleratorError("CUDA error: invalid configuration argument" + ADVICE),
        torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device" + ADVICE),
        RuntimeError("CUDA error: operation not permitted when stream is capturing" + ADVICE),
        RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasGemmEx(...)`" + ADVICE),
        RuntimeError("CUDA failure 1: invalid argument ; GPU=1 ; hostname=3e"),
        RuntimeError("secret internals of the backend"),
    ],
)
def test_any_other_error(error: Exception) -> None:
    """Errors of one question, and calls that CUDA refuses without harm, end nobody else's work."""
    assert fault_of(error) is Fault.OTHER


@pytest.mark.parametrize("pattern", [pattern for rule in RULES for pattern in rule.patterns])
def test_every_rule_reads_a_long_text_in_linear_time(pattern: str) -> None:
    """No pattern repeats without a bound, and a text of its own beginnings takes no time that a test would notice.

    `CUDA-capable device .*(...)` held the interpreter's lock for 23 s on the 142 KB of names that a store's files had.
    """
    assert not re.search(r"(?<!\\)[*+]|,}", pattern)
    literal = re.split(r"[\[(^?]", pattern.lstrip("^"), maxsplit=1)[0]
    (rule,) = {rule for rule in RULES if pattern in rule.patterns}
    for length in range(1, len(literal) + 1):
        rule.matches(f"{literal[:length]} " * (20_000 // length))


def test_the_text_of_an_error_is_cut() -> None:
    """However much of a file's content a library quotes; what the rules look for is at the beginning."""
    error = RuntimeError("CUDA error: out of memory" + "x" * 10_000_000)
    assert fault_of(error) is Fault.MEMORY
    assert len(text_of(error)) < LONGEST_TEXT + 20
