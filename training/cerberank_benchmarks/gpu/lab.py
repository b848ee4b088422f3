"""The environment of the GPU benchmarks' pieces: a device, a precision, sizes, a clock and a deadline.

On a GPU the backend uses its own attention kernel and CUDA graphs. On a processor, stand-ins that compute the same
results replace them, so that every piece runs everywhere; the figures then say nothing about a GPU.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cerberank_benchmarks.gpu.stand_ins import sdpa_kernel, written_again
from cerberank_models.backends.cuda_graphs import Capture
from cerberank_models.backends.device_memory import return_unused_memory
from cerberank_models.backends.torch_backend import GRAPH_TOKENS, TorchBackend
from cerberank_models.backends.torch_stages import PRECISIONS
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.network.varlen import VarlenAttention, kernel_for

Value = float | int | str
Row = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """A wrong result; the run's exit code is then 1."""

    text: str


Finding = Row | Problem
Findings = Generator[Finding, None, None]
"""The generator of a piece's results; closing it ends processes that the piece has started."""


class OutOfTimeError(Exception):
    """The deadline has passed; the piece ends here and keeps its rows so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of the measurements; the defaults are for a GPU."""

    warm_up: int = 3
    rounds: int = 20
    """Limit of the timed runs for a figure; at least three, then at most those that fit into `figure_seconds`."""
    figure_seconds: float = 0.5
    matmul: int = 8192
    """Rows and columns of the matrices whose product defines the matmul rate."""
    copy_bytes: int = 4 << 30
    width: int | None = None
    """Replaces the width of every network."""
    counts: tuple[int, ...] = (100, 500, 1000)
    """Numbers of candidates of a question, for its latency."""
    candidates: int = 500
    batch: int = 128
    """Pairs of a batch of CERBERUS's table 5."""
    tokens: int = 50
    """Tokens of a pair."""
    paper_tokens: int = 128
    """Tokens of a pair in CERBERUS's own table 5."""
    longest: int = 512
    """Lengths of pairs from 1 to this many tokens, for the attention kernel."""
    graph_tokens: int = GRAPH_TOKENS
    """Tokens up to which graphs are captured, by default as in the service; larger questions run without graphs."""
    batches: tuple[int, ...] = (64, 128, 256, 512)
    """Batch sizes of the peer."""
    loads: tuple[tuple[int, int, bool], ...] = (
        *((1, 500, False), (1, 500, True), (1, 100, False)),
        *((16, 500, False), (16, 500, True), (16, 100, False)),
        *((32, 20, True), (1, 1000, False), (16, 1000, False)),
    )
    """Clients of the service, candidates of a request, and whether texts are sent again."""
    served_seconds: float = 2.0
    fault_step: int = 262_144
    """Tokens of the step that does not fit into the remaining memory."""
    fault_bytes: int = 4 << 30
    """The remaining memory for that step."""
    training_layers: int = 12
    training_questions: int = 32
    """Questions of a training step, of ten candidates each."""
    training_steps: int = 60
    limit_factor: float = 1.0
    """Multiplies the time of every piece."""


TINY = Sizes(
    warm_up=1,
    rounds=1,
    matmul=64,
    copy_bytes=1 << 20,
    width=64,
    counts=(3, 6),
    candidates=6,
    batch=6,
    tokens=20,
    paper_tokens=24,
    longest=16,
    graph_tokens=256,
    batches=(2, 4),
    loads=((1, 3, False), (2, 3, True)),
    served_seconds=0.1,
    fault_step=400,
    training_layers=2,
    training_questions=2,
    training_steps=2,
    limit_factor=20.0,
)
"""Sizes with which every piece takes seconds on a processor, to test the pieces; the figures are meaningless."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The device, sizes and clock that all pieces share."""

    device: str
    precision: str
    """The half precision to measure; fp32 on a processor."""
    sizes: Sizes
    scratch: Path
    """A folder for checkpoints, generated questions and logs."""
    tokenizer: Path
    """`tokenizer.json` for the networks that read texts."""
    end: float = float("inf")
    """The deadline, by `clock`."""
    seed: int = 0
    clock: Callable[[], float] = field(default=time.perf_counter)
    kernel: VarlenAttention | None = None
    """A replacement of the device's variable-length attention; None for the device's own."""
    capture: Capture | None = None
    """A replacement of the capture of CUDA graphs; None for the device's own."""

    @property
    def on_gpu(self) -> bool:
        """True if the device is a GPU."""
        return self.device.startswith("cuda")

    @property
    def dtype(self) -> torch.dtype:
        """The precision's number format."""
        return PRECISIONS[self.precision]

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, at most an hour; 0 or less after it."""
        return min(3600.0, self.end - self.clock())

    def check_time(self) -> None:
        """Raises OutOfTimeError after the deadline."""
        if self.remaining <= 0:
            raise OutOfTimeError

    def attention(self, dtype: torch.dtype, head_size: int) -> VarlenAttention:
        """The kernel that a backend of this lab uses. Raises RuntimeError if the GPU has none for this shape."""
        kernel = self.kernel or kernel_for(torch.device(self.device), dtype, head_size)
        if kernel is None:
            raise RuntimeError(f"no variable-length attention for {dtype}, heads of {head_size} on {self.device}")
        return kernel

    def backend(self, ranker: RankingNetwork, *, precision: str | None = None, graph_tokens: int = 0) -> TorchBackend:
        """A backend that owns `ranker`. In fp32 without graphs it is a reference, which does not use the kernel.

        Raises OutOfTimeError after the deadline, and RuntimeError if the graphs could not be captured, which a service
        would only log.
        """
        self.check_time()
        precision = precision or self.precision
        reference = precision == "fp32" and not graph_tokens
        self.synchronise()  # the backend's own stream does not wait for the weights
        backend = TorchBackend(
            ranker,
            device=self.device,
            precision=precision,
            graph_tokens=graph_tokens,
            kernel=None if reference else self.kernel,
            capture=self.capture,
        )
        if backend.graph_tokens < graph_tokens:
            raise RuntimeError(f"CUDA graphs of {graph_tokens} tokens could not be captured; the log has the reason")
        return backend

    def synchronise(self) -> None:
        """Wait until the device has finished all its work."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def random(self, *shape: int, dtype: torch.dtype | None = None, seed: int = 0) -> Tensor:
        """Normal random numbers on the device; the same arguments give the same numbers."""
        generator = torch.Generator(self.device).manual_seed(self.seed + seed)
        values = torch.randn(shape, generator=generator, device=self.device, dtype=torch.float32)
        return values.to(dtype or self.dtype)

    def seconds(self, run: Callable[[], object], *, inner: int = 1) -> float:
        """Median seconds of `run`, including its work on the device; `inner` calls are timed together."""
        return self.compared({"": run}, inner=inner)[""]

    def compared(self, runs: Mapping[str, Callable[[], object]], *, inner: int = 1) -> dict[str, float]:
        """Median seconds of each function; see `times`."""
        return {name: statistics.median(values) for name, values in self.times(runs, inner=inner).items()}

    def times(self, runs: Mapping[str, Callable[[], object]], *, inner: int = 1) -> dict[str, list[float]]:
        """Seconds of each function by round; the functions run in turn, so that noise affects all alike.

        Raises OutOfTimeError if the deadline passes before all rounds are done.
        """
        for run in runs.values():
            for _ in range(self.sizes.warm_up):
                self.check_time()
                run()
        times: dict[str, list[float]] = {name: [] for name in runs}
        began = self.clock()
        for done in range(self.sizes.rounds):
            if done >= 3 and self.clock() - began > self.sizes.figure_seconds * len(runs):
                break
            for name, run in runs.items():
                self.check_time()
                times[name].append(self._once(run, inner))
        return times

    def _once(self, run: Callable[[], object], inner: int) -> float:
        self.synchronise()
        started = self.clock()
        for _ in range(inner):
            run()
        self.synchronise()
        return (self.clock() - started) / inner

    def taken_bytes(self) -> int:
        """Memory of the GPU that this process uses, after unused memory was freed; 0 on a processor."""
        return_unused_memory(self.device)
        return self.reserved_bytes()

    def reserved_bytes(self) -> int:
        """Memory of the GPU that PyTorch's allocator holds; 0 on a processor."""
        return torch.cuda.memory_reserved(self.device) if self.on_gpu else 0

    @contextmanager
    def memory_left(self, left: int) -> Iterator[int]:
        """Allocate the GPU's free memory except for `left` bytes during the block; yields the allocated bytes."""
        held: list[Tensor] = []
        if self.on_gpu:
            self.taken_bytes()
            free, _ = torch.cuda.mem_get_info(self.device)
            while (surplus := free - left) > 1 << 26:
                held.append(torch.empty(min(surplus, 8 << 30), dtype=torch.uint8, device=self.device))
                free, _ = torch.cuda.mem_get_info(self.device)
        try:
            yield sum(part.numel() for part in held)
        finally:
            held.clear()
            if self.on_gpu:
                torch.cuda.empty_cache()


def lab_for(device: str, *, precision: str | None = None, **fields: Any) -> Lab:
    """A lab with the device's own kernel and capture on a GPU, and with stand-ins on a processor."""
    if device.startswith("cuda"):
        return Lab(device=device, precision=precision or "fp16", **fields)
    stand_ins = {"kernel": sdpa_kernel, "capture": written_again} | fields
    return Lab(device=device, precision=precision or "fp32", **stand_ins)
