"""The hidden states of one question that wait between two steps, indexed by row.

A row has at most one state, which is the input of its next stage. States may be evicted at any time; they are then
recomputed from the rows' tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.ma
from numpy.typing import NDArray

from cerberank_models.backends.device_memory import DeviceMemory
from cerberank_models.backends.stage_contract import Backend
from cerberank_service.engine.faults import Fault, fault_of

Rows = NDArray[np.int64]
NOWHERE = -1
LEAST_STATE_BYTES = 512 * 1024 * 1024
"""Limit of the memory for waiting hidden states on a processor, and the least limit on a GPU."""
STATE_SHARE = 8
"""On a GPU, waiting states may take one part in this many of its memory. The states of 5,000 candidates of 50 tokens
take 384 MB at a width of 768 in half precision, and a busy service has several such questions."""


def default_state_bytes(memory: DeviceMemory | None) -> int:
    """The limit of waiting hidden states, in bytes, for a GPU's memory; for a processor if `memory` is None."""
    return LEAST_STATE_BYTES if memory is None else max(LEAST_STATE_BYTES, memory.total // STATE_SHARE)


@dataclass(slots=True)
class _Chunk:
    """The output state of one step; `rows` are the rows that still wait, `places` their positions in `state`."""

    state: Any
    rows: Rows
    places: Rows
    size: int
    """Bytes of the whole state, which is kept until none of its rows waits."""
    all_wait: bool = True
    """True while every row of the state still waits."""


class WaitingStates:
    """Hidden states in chunks, one for each step that computed some of them."""

    def __init__(self, lengths: NDArray[np.int64]) -> None:
        """`lengths` are the tokens of each row of the question."""
        self._lengths = lengths
        self._chunk_of = np.full(len(lengths), NOWHERE, dtype=np.int64)
        self._place = np.zeros(len(lengths), dtype=np.int64)
        self._chunks: dict[int, _Chunk] = {}
        self._next = 0
        self.size = 0
        """Bytes of all stored states."""

    def put(self, rows: Rows, state: Any, backend: Backend[Any]) -> None:
        """Store `state`, whose pairs are `rows` in this order, until the rows are released."""
        places, size = np.arange(len(rows)), backend.state_bytes(state)
        self._chunks[self._next] = _Chunk(state, rows, places, size)
        self._chunk_of[rows], self._place[rows] = self._next, places
        self._next += 1
        self.size += size

    def find(self, rows: Rows, backend: Backend[Any]) -> tuple[list[tuple[Rows, Any]], Rows]:
        """Pairs of rows and their stored state for those of `rows` that have one, and the rows without a state."""
        chunk_of = self._chunk_of[rows]
        states = []
        for number in np.unique(chunk_of[chunk_of != NOWHERE]).tolist():
            chunk, part = self._chunks[number], rows[chunk_of == number]
            if chunk.all_wait and np.array_equal(part, chunk.rows):
                states.append((part, chunk.state))
            else:
                states.append((part, backend.select(chunk.state, self._place[part])))
        return states, rows[chunk_of == NOWHERE]

    def release(self, rows: Rows) -> None:
        """Remove the states of rows that have run through the next stage or were dropped."""
        touched = np.unique(self._chunk_of[rows])
        self._chunk_of[rows] = NOWHERE
        for number in touched[touched != NOWHERE].tolist():
            chunk = self._chunks[number]
            still = self._chunk_of[chunk.rows] == number
            chunk.rows, chunk.places, chunk.all_wait = chunk.rows[still], chunk.places[still], False
            if not len(chunk.rows):
                self._forget(number)

    def compact(self, backend: Backend[Any]) -> None:
        """Free the memory of released rows, by copying the waiting rows of partly released chunks to new states."""
        for number in list(self._chunks):  # a list of the chunks themselves would keep their memory alive
            chunk = self._chunks[number]
            if not chunk.all_wait:
                try:
                    state = backend.select(chunk.state, chunk.places)
                except Exception as error:  # libraries have different types of errors for too little memory
                    if fault_of(error) is not Fault.MEMORY:
                        raise
                    self._evict(number)  # frees the memory that the copy needed; the rows are recomputed later
                    continue
                rows = chunk.rows
                self._forget(number)
                self.put(rows, state, backend)

    def evict(self) -> None:
        """Evict the chunk that will be needed last: the one with the shortest rows, because longer rows run first."""
        last = min(self._chunks, key=lambda number: float(self._lengths[self._chunks[number].rows].mean()))
        self._evict(last)

    def _evict(self, number: int) -> None:
        self._chunk_of[self._chunks[number].rows] = NOWHERE
        self._forget(number)

    def _forget(self, number: int) -> None:
        self.size -= self._chunks.pop(number).size
