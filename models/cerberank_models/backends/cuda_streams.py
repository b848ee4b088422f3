"""CUDA streams that no two open backends share.

PyTorch hands out 32 streams of a device in turns (c10/cuda/CUDAStream.cpp), so that in a process which has loaded many
versions a new one would get the stream of one that serves, and capture its work.
"""

from __future__ import annotations

from weakref import WeakSet

import torch

STREAMS = 32
"""Streams in PyTorch's pool."""

_in_use: WeakSet[torch.cuda.Stream] = WeakSet()
"""Streams of open backends. Of the whole process, because the pool is."""


def own_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream that nobody else has, as long as the result is kept; a shared one when all of them are taken.

    It waits for the work of the current stream: weights that lie on the device already may still be written there, such
    as by a training step.
    """
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    for _ in range(STREAMS):
        if stream not in _in_use:
            break
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    _in_use.add(stream)
    stream.wait_stream(torch.cuda.current_stream(device))
    return stream
