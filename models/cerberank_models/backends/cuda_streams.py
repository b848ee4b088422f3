"""Gives each open backend a CUDA stream of its own.

PyTorch hands out 32 streams per device in turn (c10/cuda/CUDAStream.cpp). In a process that has loaded many versions, a
new version could get the stream of another one that serves requests, and would capture its work.
"""

from __future__ import annotations

from weakref import WeakSet

import torch

STREAMS = 32
"""The number of streams in PyTorch's pool."""

_in_use: WeakSet[torch.cuda.Stream] = WeakSet()
"""The streams of all open backends of the process."""


def own_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that is reserved as long as the result is referenced; a shared one if all streams are reserved.

    It waits for the work of the current stream, because a training step, for example, may still be writing weights that
    are on the device already.
    """
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for _ in range(STREAMS):
        if stream not in _in_use:
            break
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    _in_use.add(stream)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream
