"""Bodies with far too much of something, against the real process; `make fuzz` asks with all of them."""

from __future__ import annotations

from tools.oversized import OVERSIZED_BYTES, binary_tensors, oversized, violations
from tools.process import Process

NAMES = {"model": "random-tiny", "version": "1"}


def test_a_long_list_of_wrong_elements_costs_little(shared_service: Process) -> None:
    """At every place of every dialect that takes a list: refused, with a short answer, at a bounded price."""
    pid = shared_service.process.pid
    broken = violations(
        shared_service.url, pid, NAMES, OVERSIZED_BYTES, lambda *arguments: oversized(*arguments, only="an array of []")
    )
    assert broken == []


def test_a_binary_tensor_of_a_million_texts_costs_little(shared_service: Process) -> None:
    """In a body of the largest size each empty text takes four bytes, and is refused without being read."""
    pid = shared_service.process.pid
    broken = violations(
        shared_service.url, pid, NAMES, 4_160_000, lambda document, _, size: binary_tensors(document, size)
    )
    assert broken == []
