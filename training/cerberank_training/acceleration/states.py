"""Computes the exits' input for every pair once, because the hidden states of a frozen body do not change.

Input: unlabelled questions, and a ranker with untrained exits. Output: mapped files in a folder, with what exits read,
and with the model's final scores. Exits that read single tokens need the states of all tokens, some forty times as much
room as the pooled vectors that other exits read. A killed run resumes after the last finished question.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.encoding import EncodedPairs, PairEncoder
from cerberank_models.network.exits import Exit
from cerberank_models.network.layout import PackedLayout
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_models.progress import progress
from cerberank_training.data import Question
from cerberank_training.teachers.scoring.checkpoint import logit

STATES, LOGITS = "states.npy", "logits.npy"
GIGABYTE = 1e9


@dataclass(frozen=True, kw_only=True, slots=True)
class ExitInputs:
    """The states that exits read of the pairs of questions, one question after the other, and the final scores."""

    offsets: NDArray[np.int64]
    """`[Q + 1]`: question i owns the pairs `offsets[i]:offsets[i + 1]`."""
    row_offsets: NDArray[np.int64]
    """`[P + 1]`: pair i owns the rows `row_offsets[i]:row_offsets[i + 1]` of `states`: its tokens, or one row."""
    states: NDArray[np.float16]
    """`[R, E, D]`: at E exits the hidden states of all tokens, or one pooled vector for each pair."""
    logits: NDArray[np.float32]
    """`[P]`: the model's final scores as logits; NaN if a score is not computed yet."""

    def pairs(self, question: int) -> slice:
        """The range of the pairs of one question."""
        return slice(int(self.offsets[question]), int(self.offsets[question + 1]))

    def rows(self, question: int) -> slice:
        """The range of the rows of one question."""
        pairs = self.pairs(question)
        return slice(int(self.row_offsets[pairs.start]), int(self.row_offsets[pairs.stop]))

    def lengths(self, question: int) -> NDArray[np.int64]:
        """`[N]`: the number of rows of each pair of one question."""
        pairs = self.pairs(question)
        return np.diff(self.row_offsets[pairs.start : pairs.stop + 1])


@dataclass(frozen=True, kw_only=True, slots=True)
class FrozenBody:
    """A copy of a ranker, and the backend that runs it."""

    ranker: RankingNetwork
    backend: TorchBackend

    @classmethod
    def of(cls, ranker: RankingNetwork, *, device: str = "cpu", precision: str = "fp32") -> FrozenBody:
        """Copy `ranker`, because the backend casts and moves it. Raises the errors of `TorchBackend`."""
        copied = copy.deepcopy(ranker)
        return cls(ranker=copied, backend=TorchBackend(copied, device=device, precision=precision))

    @property
    def new_exits(self) -> list[Exit]:
        """The exits of all stages but the last."""
        return [cast(Exit, exit_) for exit_ in self.ranker.exits][: len(self.ranker.config.stages) - 1]

    @property
    def reads_tokens(self) -> bool:
        """True if an exit reads single tokens."""
        return any(exit_.config.token_features for exit_ in self.new_exits)


def compute_states(folder: Path, body: FrozenBody, encoder: PairEncoder, questions: Sequence[Question]) -> ExitInputs:
    """Compute the states that exits read of all pairs of `questions`, except those that are in `folder`.

    The caller must ensure that `folder` belongs to this body, these questions and this precision. Raises ValueError for
    hidden states that are too large for float16, and OSError if the folder's disk has no room for them.
    """
    stored = _open(folder, body, encoder, questions)
    numbered = progress(enumerate(questions), total=len(questions), unit="question", desc="states")
    for index, question in numbered:
        scored = stored.pairs(index)
        if not np.isnan(stored.logits[scored]).any():
            continue
        # Logits are written after the states, so that a question with logits always has its states.
        pairs = _encoded(encoder, question)
        stored.logits[scored] = _run(body, pairs, into=stored.states[stored.rows(index)])
    return stored


def _encoded(encoder: PairEncoder, question: Question) -> EncodedPairs:
    return encoder.encode(question.text, [row.candidate for row in question.candidates])


def _open(folder: Path, body: FrozenBody, encoder: PairEncoder, questions: Sequence[Question]) -> ExitInputs:
    offsets = np.cumsum([0, *(len(question.candidates) for question in questions)])
    row_offsets = np.arange(offsets[-1] + 1)
    if body.reads_tokens:
        lengths = (np.diff(_encoded(encoder, question).offsets) for question in questions)
        row_offsets = np.cumsum([0, *chain.from_iterable(lengths)])
    shape = (int(row_offsets[-1]), len(body.new_exits), body.new_exits[0].output.in_features)
    folder.mkdir(parents=True, exist_ok=True)
    # A killed call may have left the states alone, and version 0.1.0 left logits beside a file of another name.
    if not all((folder / name).is_file() for name in (STATES, LOGITS)):
        (folder / LOGITS).unlink(missing_ok=True)
        _check_room(folder, shape, pairs=int(offsets[-1]))
        np.lib.format.open_memmap(folder / STATES, mode="w+", dtype=np.float16, shape=shape).flush()
        partial = folder / f".{LOGITS}"
        with partial.open("wb") as file:
            np.save(file, np.full(int(offsets[-1]), np.nan, dtype=np.float32))
        partial.replace(folder / LOGITS)
    states, logits = (np.load(folder / name, mmap_mode="r+", allow_pickle=False) for name in (STATES, LOGITS))
    return ExitInputs(offsets=offsets, row_offsets=row_offsets, states=states, logits=logits)


def _check_room(folder: Path, shape: tuple[int, int, int], *, pairs: int) -> None:
    """Raise OSError, which says what needs less room, if the disk cannot hold the states."""
    rows, exits, width = shape
    needed, free = 2 * rows * exits * width, shutil.disk_usage(folder).free
    if needed > free:
        pooled = 2 * pairs * exits * width
        raise OSError(
            f"{folder} needs {needed / GIGABYTE:.1f} GB for the states that exits read, and {free / GIGABYTE:.1f} GB "
            f"are free: give fewer questions or exits, or --token-features 0, which needs {pooled / GIGABYTE:.1f} GB"
        )


def _run(body: FrozenBody, pairs: EncodedPairs, *, into: NDArray[np.float16]) -> NDArray[np.float32]:
    """The final scores of the pairs as logits. `into` `[R, E, D]` gets what the exits read, one exit after another."""
    backend = body.backend
    state = backend.start(pairs)
    for stage, exit_ in enumerate(body.new_exits):
        after = backend.run(state, stage).state
        assert after is not None, "the last stage alone ends without a state"
        assert after.hidden is not None, "hidden states are there after the first stage"
        state = after
        read = _read(exit_, after.hidden, after.offsets, tokens=body.reads_tokens)
        if not read.abs().max() <= torch.finfo(torch.float16).max:
            raise ValueError("hidden states are too large for float16: exits cannot be trained on them")
        into[:, stage] = read.half().cpu().numpy()
    return logit(backend.run(state, len(body.new_exits)).scores)


def _read(exit_: Exit, hidden: Tensor, offsets: NDArray[np.int64], *, tokens: bool) -> Tensor:
    """The states of all tokens `[T, D]`, or one pooled vector for each pair, `[N, D]`."""
    if tokens:
        return hidden
    with torch.inference_mode():
        return exit_.pool(hidden, PackedLayout.of(torch.from_numpy(offsets).to(hidden.device)))
