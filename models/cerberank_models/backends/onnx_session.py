"""Opens graphs in ONNX Runtime on a given device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from cerberank_models.backends.processors import compute_threads
from cerberank_models.backends.stage_contract import DeviceError
from cerberank_models.config import RankerConfig
from cerberank_models.output import installed_by

GRAPH = Path(__file__).with_name("int8_products.onnx")
"""A graph that is one `MatMulInteger` of the input `x`, uint8 [rows, 64], and a weight, int8 [64, 32], of all 127."""


def products_saturate() -> bool:
    """True if this processor computes a wrong product of 255s and 127s. The test takes about a millisecond."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(GRAPH), options, providers=["CPUExecutionProvider"])
    x = np.full((4, 64), 255, np.uint8)
    return bool((np.asarray(session.run(None, {"x": x})[0]) != 64 * 255 * 127).any())


logger = logging.getLogger(__name__)

EXACT_INT8 = "session.x64quantprecision"
"""The option that converts int8 weights to uint8, for processors on which products of uint8 and int8 saturate.

With it, ONNX Runtime 1.31 converts on every x86-64 processor, even if VNNI or AMX make the products exact. There, uint8
weights take more than twice the time (docs/decisions/0001).
"""

CUDA_OPTIONS = {
    # TF32, on by default, has errors of 1e-3, with which a golden question in fp32 may exceed its tolerance.
    "use_tf32": "0",
    # By default the arena doubles with every extension, which takes memory that other versions need.
    "arena_extend_strategy": "kSameAsRequested",
}
"""The options of ONNX Runtime's CUDA provider."""


def open_session(graph: Path, *, threads: int | None, device: str) -> onnxruntime.InferenceSession:
    """A session on `device` (`cpu`, `cuda`, `cuda:1`). `threads` None uses all processors of this process.

    Raises DeviceError if the device's provider is not installed or cannot start, or if both wheels of ONNX Runtime are
    installed.
    """
    refuse_two_runtimes()
    kind, provider = place_of(device)[0], provider_of(device)
    if kind != "cpu":
        onnxruntime.preload_dlls()  # loads the libraries of CUDA and cuDNN that pip has installed
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = compute_threads(threads)
    options.log_severity_level = 3
    # Every stage's session has its own thread pool. Idle pools must not spin, because they would take processor time
    # from each other and from the threads that tokenise.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # ONNX Runtime would plan memory for every new input shape. Almost every batch has a new one, and planning took 3 %
    # of the time.
    options.enable_mem_pattern = False
    # On a processor the fused operator takes five times as long as the addition and the norm that it replaces.
    slow = ["SkipLayerNormFusion"] if kind == "cpu" else []

    def opened(exact: str) -> onnxruntime.InferenceSession:
        options.add_session_config_entry(EXACT_INT8, exact)
        return onnxruntime.InferenceSession(str(graph), options, providers=[provider], disabled_optimizers=slow)

    session = _exact(opened, graph) if products_saturate() else opened("0")
    check_provider(session.get_providers(), device)
    return session


def open_stages(
    graphs: Sequence[Path], config: RankerConfig, *, threads: int | None, device: str
) -> list[onnxruntime.InferenceSession]:
    """A session for the graph of each stage. Raises ValueError if there are more or fewer graphs than stages."""
    if len(graphs) != len(config.stages):
        raise ValueError(f"{len(config.stages)} stages need as many graphs, not {len(graphs)}")
    return [open_session(graph, threads=threads, device=device) for graph in graphs]


def provider_of(device: str) -> str | tuple[str, dict[str, Any]]:
    """The execution provider for a device, with its options. Raises DeviceError if it is not installed."""
    kind, number = place_of(device)
    if kind == "cpu":
        return "CPUExecutionProvider"
    name = "CUDAExecutionProvider"
    if name not in onnxruntime.get_available_providers():
        raise DeviceError(f"device {device!r} needs ONNX Runtime's {name}; {installed_by('onnx-gpu')}")
    return name, {"device_id": number, **CUDA_OPTIONS}


def _exact(opened: Callable[[str], onnxruntime.InferenceSession], graph: Path) -> onnxruntime.InferenceSession:
    """A session with exact int8 products, or if ONNX Runtime cannot make one, a saturating session and a warning."""
    try:
        return opened("1")
    # ONNX Runtime's errors have no common base class. An error in the graph itself is raised by the second call.
    except Exception:
        session = opened("0")
    logger.warning(
        "%s: several products share an int8 tensor, which ONNX Runtime cannot make exact on this processor: scores "
        "may differ from those of others; export the checkpoint again, or serve fp32",
        graph,
    )
    return session


def check_provider(running: Sequence[str], device: str) -> None:
    """Raise DeviceError if a session for a GPU runs on the processor.

    ONNX Runtime lists its CUDA provider even if CUDA's libraries are missing, and then uses the processor without an
    error.
    """
    wanted = "CPUExecutionProvider" if place_of(device)[0] == "cpu" else "CUDAExecutionProvider"
    if not running or running[0] != wanted:
        raise DeviceError(
            f"device {device!r} needs ONNX Runtime's {wanted}, which could not start (it runs {', '.join(running)}); "
            f"CUDA's or cuDNN's libraries are missing, or of another version; {installed_by('onnx-gpu')}"
        )


def place_of(device: str) -> tuple[str, int]:
    """The kind and the number of a device.

    >>> place_of("cpu"), place_of("cuda"), place_of("cuda:1")
    (('cpu', 0), ('cuda', 0), ('cuda', 1))
    """
    kind, _, number = device.partition(":")
    return kind, int(number or 0)


def refuse_two_runtimes() -> None:
    """Raise DeviceError if both wheels of ONNX Runtime are installed, because they overwrite each other's files."""
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(installed) == 2:
        raise DeviceError("onnxruntime and onnxruntime-gpu are both installed; uninstall both, then install one")


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
