"""The stage contract on ONNX Runtime: CPU (fp32, int8) or a GPU provider, without torch.

States are packed; each run sorts its pairs by length, cuts them into buckets, pads within a bucket
and unpads the result, so that padding stays small however mixed the lengths are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from cerberank_models.backend import StageOutput, combine, probability
from cerberank_models.config import RankerConfig
from cerberank_models.encoding import EncodedPairs, concat_pairs, packed_rows
from cerberank_models.processors import usable_processors

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class OnnxState:
    """Hidden states `[T, D]` of some pairs, packed; before stage 0 only their token ids."""

    offsets: NDArray[np.int64]
    pairs: EncodedPairs | None
    hidden: Floats | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketRule:
    """How a run is cut into padded batches."""

    tokens: int = 2048
    """Most tokens (padding included) of one batch: larger ones leave the processor's cache."""
    waste: float = 0.25
    """A batch ends before a pair that would be padded by more than this share of the batch's length."""


class OnnxBackend:
    """Runs one ONNX graph per stage."""

    def __init__(
        self,
        graphs: Sequence[Path],
        config: RankerConfig,
        *,
        threads: int | None = None,
        device: str = "cpu",
        buckets: BucketRule | None = None,
    ) -> None:
        """Open the graphs; `threads` None takes all processors that this process may use.

        Raises ValueError when the number of graphs is not the number of stages, RuntimeError when the device's
        provider is not installed.
        """
        if len(graphs) != len(config.stages):
            raise ValueError(f"{len(config.stages)} stages need as many graphs, not {len(graphs)}")
        refuse_two_runtimes()
        self._config = config
        self._buckets = buckets or BucketRule()
        self._sessions = [_session(graph, threads, device) for graph in graphs]
        self.padding_tokens = 0
        """Padding computed so far, for the metrics."""

    @property
    def config(self) -> RankerConfig:
        """The ranker's shape."""
        return self._config

    def start(self, pairs: EncodedPairs) -> OnnxState:
        """Keep the token ids; they are embedded when stage 0 runs."""
        return OnnxState(pairs.offsets, pairs, None)

    def run(self, state: OnnxState, stage: int) -> StageOutput[OnnxState]:
        """Run one stage's graph over every bucket."""
        plan, last = self._config.stages[stage], stage == len(self._config.stages) - 1
        lengths = np.diff(state.offsets)
        columns = 1 if plan.kind == "exit" else self._config.architecture.heads
        logits = np.empty((len(lengths), columns), dtype=np.float32)
        width = self._config.transformer.hidden_size
        after = None if last else np.empty((int(state.offsets[-1]), width), dtype=np.float32)
        for rows in _buckets(lengths, self._buckets):
            index, _ = packed_rows(state.offsets, rows)
            mask = np.arange(int(lengths[rows].max()))[None, :] < lengths[rows][:, None]
            self.padding_tokens += mask.size - len(index)
            outputs = self._sessions[stage].run(None, _feeds(state, index, mask))
            logits[rows] = outputs[0]
            if after is not None:
                after[index] = outputs[1][mask]
        follow = None if after is None else OnnxState(state.offsets, None, after)
        if plan.kind == "exit":
            return StageOutput(state=follow, scores=probability(logits[:, 0]), head_scores=None)
        scores = combine(logits, self._config.architecture.combine)
        return StageOutput(state=None, scores=scores, head_scores=probability(logits))

    def select(self, state: OnnxState, rows: NDArray[np.integer]) -> OnnxState:
        """Gather the tokens of `rows`."""
        if state.pairs is not None:
            return self.start(state.pairs.select(rows))
        assert state.hidden is not None, "a state has token ids until it has hidden states"
        index, offsets = packed_rows(state.offsets, rows)
        return OnnxState(offsets, None, state.hidden[index])

    def concat(self, states: Sequence[OnnxState]) -> OnnxState:
        """Join token ids or hidden states."""
        if len(states) == 1:
            return states[0]
        waiting = [state.pairs for state in states if state.pairs is not None]
        if len(waiting) == len(states):
            return self.start(concat_pairs(waiting))
        lengths = np.concatenate([np.diff(state.offsets) for state in states])
        hidden = np.concatenate([state.hidden for state in states if state.hidden is not None])
        return OnnxState(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), None, hidden)


def refuse_two_runtimes() -> None:
    """Raise RuntimeError when both ONNX Runtime wheels are installed: they overwrite each other's files."""
    installed = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(installed) == 2:
        raise RuntimeError("onnxruntime and onnxruntime-gpu are both installed; uninstall both, then install one")


def _installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _session(graph: Path, threads: int | None, device: str) -> onnxruntime.InferenceSession:
    provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise RuntimeError(f"device {device!r} needs ONNX Runtime's {provider}: install cerberank[onnx-gpu]")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or usable_processors()
    options.log_severity_level = 3
    # Every stage has a thread pool of its own: spinning, they take the processors from each other (on 2
    # cores a question of 10 candidates took twice as long) and from the threads that tokenise.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Its CPU kernel takes five times as long as the addition and the norm that it replaces.

    slow = ["SkipLayerNormFusion"] if device == "cpu" else []
    return onnxruntime.InferenceSession(str(graph), options, providers=[provider], disabled_optimizers=slow)


def _feeds(state: OnnxState, index: NDArray[np.int64], mask: NDArray[np.bool_]) -> dict[str, NDArray[np.generic]]:
    """The padded inputs of one bucket: `index` are its tokens in the state, row after row."""
    if state.pairs is not None:
        token_ids = np.zeros(mask.shape, dtype=np.int64)
        type_ids = np.zeros(mask.shape, dtype=np.int64)
        token_ids[mask] = state.pairs.token_ids[index]
        type_ids[mask] = state.pairs.type_ids[index]
        return {"token_ids": token_ids, "type_ids": type_ids, "mask": mask}
    assert state.hidden is not None, "a state has token ids until it has hidden states"
    hidden = np.zeros((*mask.shape, state.hidden.shape[1]), dtype=np.float32)
    hidden[mask] = state.hidden[index]
    return {"hidden": hidden, "mask": mask}


def _buckets(lengths: NDArray[np.int64], rule: BucketRule) -> Iterator[NDArray[np.int64]]:
    """Rows of each padded batch, longest first."""
    longest_first = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(longest_first):
        longest = int(lengths[longest_first[start]])
        room = max(1, rule.tokens // longest)
        rows = longest_first[start : start + room]
        near = lengths[rows] >= longest * (1.0 - rule.waste)
        rows = rows[: int(near.sum())]  # lengths fall, so the near ones stand first
        yield rows
        start += len(rows)
