"""A backend that gives other scores than the one within it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Backend, BackendCounts, Scores, StageOutput
from cerberank_models.encoding import EncodedPairs


class Altered:
    """A backend whose stages give `scores(stage, scores)` of those of `inner`."""

    device_memory = None

    def __init__(self, inner: Backend[Any], scores: Callable[[int, Scores], Scores]) -> None:
        self.inner = inner
        self.config = inner.config
        self.counts = BackendCounts()
        self.precision = inner.precision
        self.scores = scores

    def start(self, pairs: EncodedPairs) -> Any:
        return self.inner.start(pairs)

    def run(self, state: Any, stage: int) -> StageOutput[Any]:
        output = self.inner.run(state, stage)
        scores = self.scores(stage, output.scores)
        return StageOutput(state=output.state, scores=scores, head_scores=output.head_scores)

    def select(self, state: Any, rows: NDArray[Any]) -> Any:
        return self.inner.select(state, rows)

    def concat(self, states: Any) -> Any:
        return self.inner.concat(states)

    def state_bytes(self, state: Any) -> int:
        return self.inner.state_bytes(state)

    def free_memory(self) -> None:
        raise AssertionError("only the engine frees memory")

    def prepare(self, step_tokens: int) -> None:
        raise AssertionError("only the service chooses the tokens of a step")
