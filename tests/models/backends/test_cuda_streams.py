"""Streams of open backends, with a pool of four in the place of PyTorch's."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch

from cerberank_models.backends.cuda_streams import own_stream


class PooledStream:
    """In the place of `torch.cuda.Stream`: equal streams are the same stream of the device."""

    def __init__(self, number: int) -> None:
        self.number = number

    def wait_stream(self, stream: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PooledStream) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


def test_open_backends_share_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many backends were opened and closed, those that are open have streams of their own."""
    numbers = itertools.cycle(range(4))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: PooledStream(next(numbers)))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    device = torch.device("cuda")
    stable = own_stream(device)
    for _ in range(20):
        pushed = own_stream(device)
        assert pushed != stable
        del pushed
        gc.collect()
    kept = [own_stream(device) for _ in range(3)]
    assert len({stable, *kept}) == 4
    assert own_stream(device) in {stable, *kept}  # all are taken: it is shared rather than refused
