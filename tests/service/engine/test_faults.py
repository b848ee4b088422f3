"""The meaning of errors of PyTorch, ONNX Runtime and CUDA's libraries, by their real messages."""

from __future__ import annotations

import pytest
import torch

from cerberank_service.engine.faults import DeviceFailedError, Fault, fault_of

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
