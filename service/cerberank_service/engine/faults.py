"""Classifies a model's errors for the engine: out of memory, a failed device, or any other error; and shortages.

Errors are classified by their messages and type names, because the libraries' exception types are not imported here.
The first rule that matches decides. A message may hold names and contents of a store's files, so it is cut before any
rule, page or log sees it, and no pattern repeats without a bound.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from enum import Enum

LONGEST_TEXT = 1000
"""The most characters of an error's text."""


class Fault(Enum):
    """The class of an error, which decides how the engine reacts."""

    MEMORY = "out of memory"
    """The engine retries the batch in halves."""
    DEVICE = "the device has failed"
    """The process must be restarted: a CUDA context never recovers, and every later call of the process fails."""
    OTHER = "other"
    """The engine bisects the batch by questions. A question that fails on its own is answered with an error."""


class DeviceFailedError(RuntimeError):
    """The device has failed; the message is the library's."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A class of errors, recognised by patterns in their text `Type: message`."""

    fault: Fault
    source: str
    """The library that raises these errors, and where they are documented."""
    patterns: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """True if an error's text contains one of the patterns; case is ignored."""
        return re.search("|".join(self.patterns), text, re.IGNORECASE) is not None


RULES = (
    Rule(Fault.MEMORY, "Python and C++: MemoryError, std::bad_alloc", ("^MemoryError", "bad_alloc", "bad allocation")),
    Rule(Fault.MEMORY, "PyTorch's allocator on a processor (alloc_cpu.cpp)", ("can't allocate memory",)),
    Rule(
        Fault.MEMORY,
        "torch.OutOfMemoryError, cudaErrorMemoryAllocation (CUDA Runtime API, Error handling)",
        ("out of memory", "^OutOfMemoryError", "cudaErrorMemoryAllocation"),
    ),
    Rule(Fault.MEMORY, "ONNX Runtime's arena (bfc_arena.cc)", ("failed to allocate",)),
    Rule(
        Fault.MEMORY,
        "cuBLAS and cuDNN, whose handles and workspaces lie on the device; they also fail to be created where memory "
        "is short (cuBLAS: cublasStatus_t; cuDNN: cudnnStatus_t). If the device has failed instead, freeing memory "
        "before the retry says so.",
        (
            "CUBLAS_STATUS_ALLOC_FAILED",
            "CUBLAS_STATUS_NOT_INITIALIZED",
            "CUDNN_STATUS_ALLOC_FAILED",
            "CUDNN_STATUS_NOT_INITIALIZED",
            "CUDNN_STATUS_INTERNAL_ERROR_(DEVICE|HOST)_ALLOCATION_FAILED",
        ),
    ),
    Rule(
        Fault.DEVICE,
        "CUDA Runtime API, cudaError_t: errors that leave the process in an inconsistent state",
        (
            "device-side assert triggered",  # every CUDA error of PyTorch ends in advice on device-side assertions
            "illegal memory access",
            "illegal instruction",
            "illegal address",
            "misaligned address",
            "not supported on global/shared address space",
            "invalid program counter",
            "hardware stack error",
            "unspecified launch failure",
            "the launch timed out",
            "uncorrectable (ECC|NVLink) error",
            "GPU is lost",
            "fallen off the bus",
            "CUDA-capable devices? [^\n]{0,100}(busy|unavailable|detected)",
        ),
    ),
    Rule(
        Fault.OTHER,
        "Calls that CUDA and its libraries refuse; nothing has run, and the context stays as it was",
        (
            "invalid argument",
            "invalid configuration argument",
            "invalid device function",
            "invalid device ordinal",
            "invalid resource handle",
            "no kernel image is available",
            "too many resources requested for launch",
            "not supported",
            "stream is capturing",
            "error during capture",
            "(CUBLAS|CUDNN)_STATUS_(INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH|BAD_PARAM|LICENSE_ERROR)",
        ),
    ),
    Rule(
        Fault.DEVICE,
        "Any other failure that CUDA reports: torch (`CUDA error: ...`, for the driver's own functions "
        "`CUDA driver error: ...`, torch.AcceleratorError) and ONNX Runtime (`CUDA failure 700: ...`, cuda_call.cc). "
        "An unknown one is taken for a failed device, because a process that goes on with one fails on every question.",
        (
            "^AcceleratorError",
            "CUDA (driver )?error:",
            r"(CUDA|CUBLAS|CUDNN)[A-Z_]{0,20} failure -?\d",
            "STATUS_EXECUTION_FAILED",
        ),
    ),
)


def text_of(error: BaseException) -> str:
    """The error's text, or the name of its type if it has none; at most LONGEST_TEXT characters and a mark of the cut.

    >>> text_of(ValueError("x" * 5000))[-20:], text_of(MemoryError())
    ('xxxxxxxxxxx [...cut]', 'MemoryError')
    """
    text = str(error) or type(error).__name__
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} [...cut]"


def fault_of(error: BaseException) -> Fault:
    """The class of `error`."""
    if isinstance(error, MemoryError):
        return Fault.MEMORY
    if isinstance(error, DeviceFailedError):
        return Fault.DEVICE
    text = f"{type(error).__name__}: {text_of(error)}"
    return next((rule.fault for rule in RULES if rule.matches(text)), Fault.OTHER)


SHORTAGES = {number: os.strerror(number) for number in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)}
NO_THREAD = "can't start new thread"


def is_shortage(error: BaseException) -> bool:
    """True if an error, by its `errno` or its text, says that the machine lacks descriptors, threads or memory.

    The text is needed because errors of libraries in other languages only have the system's text.
    """
    number, text = getattr(error, "errno", None), text_of(error)
    return number in SHORTAGES or any(words in text for words in (NO_THREAD, *SHORTAGES.values()))
