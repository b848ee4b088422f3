"""Warms a model up over a range of lengths, so that the first request is not slower and the model's speed is known.

On a GPU full steps are run as well (`step_size`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.processors import usable_processors
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.text_encoding import TextEncoder
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.versions.rejection import TooSlowError
from cerberank_service.versions.step_size import Input, warm_up_steps

WORDS = (4, 16, 48, 96)
"""Lengths of the candidates: a short phrase up to the usual token limit."""
MOST_CANDIDATES, MOST_WORDS = 8, 400
"""Limits of a warm-up batch, which has at least one candidate for each processor. It is large enough to be typical, and
small enough that one stage delays live requests by less than 10 ms on two processors."""
ROUNDS = 2
QUESTION = "what is a word"
USUAL_TOKENS = 100 * 48
"""Tokens of the question to which `slowest_ms` refers: 100 candidates of 48 tokens."""


def warm_up(
    backend: Backend[Any],
    encoder: PairEncoder,
    first: TextEncoder | None = None,
    *,
    step_tokens: int = 0,
    slowest_ms: float = 0.0,
    pause: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> StageSpeeds:
    """Run every stage, that of a `first` stage's texts too, and return the measured speeds.

    They hold the tokens of a full step, which 0 as `step_tokens` chooses.
    `pause` is called before each run. Raises MemoryError when no step fits, TooSlowError when 100 candidates of 48
    tokens would take longer than `slowest_ms` without dropping; 0 accepts any speed.
    """
    speeds = StageSpeeds(backend.config.scored_stage_layers)
    for round_ in range(ROUNDS):
        for words in WORDS:
            count = max(usable_processors(), min(MOST_CANDIDATES, MOST_WORDS // words))
            for stages, tokens in _inputs(backend.config.scored_stages, encoder, first, ["word " * words] * count):
                state = backend.start(tokens)
                for stage in stages:
                    pause()
                    before = clock()
                    output = backend.run(state, stage)
                    if round_:  # the first round allocates memory and tunes kernels
                        speeds.observe(stage, tokens.tokens, clock() - before)
                    state = output.state
    inputs = _inputs(backend.config.scored_stages, encoder, first, ["word " * words for words in WORDS])
    speeds.step_tokens = warm_up_steps(backend, inputs, step_tokens, speeds, pause=pause, clock=clock)
    took = 1000.0 * speeds.alone([USUAL_TOKENS] * backend.config.scored_stages)
    if slowest_ms and took > slowest_ms:
        raise TooSlowError(
            f"100 candidates of 48 tokens take {took:.0f} ms, CERBERANK_SLOWEST_MS allows {slowest_ms:g}"
        )
    return speeds


def _inputs(stages: int, encoder: PairEncoder, first: TextEncoder | None, texts: list[str]) -> list[Input]:
    """The texts for a first stage, if there is one, and as pairs for the stages after it."""
    pairs = encoder.encode(QUESTION, [Candidate(text=text) for text in texts])
    if first is None:
        return [(range(stages), pairs)]
    return [(range(1), first.candidates(texts)), (range(1, stages), pairs)]
