"""Warms a model up with texts of several lengths, so that first requests are not slower and its speed is known.

The warm-up also chooses the size of a step, unless the settings state it. A step should take at most a tenth of a
second, because small questions may have to wait for one.

- On a processor, the size is the one that takes a tenth of a second by the measured speed. Smaller steps would only add
  overhead, because backends divide batches to fit the processor's cache anyway.
- A GPU is only busy with large steps, and the necessary size depends on the model, the precision and the card.
  Therefore steps of several sizes are run, and the smallest size that is nearly as fast as the fastest is chosen.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cerberank_models.backends.processors import usable_processors
from cerberank_models.backends.stage_contract import Backend
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.text_encoding import TextEncoder
from cerberank_models.tokens import largest_token_id
from cerberank_service.engine.cost import StageSpeeds
from cerberank_service.engine.faults import Fault, fault_of
from cerberank_service.versions.failure import TooSlowError

logger = logging.getLogger(__name__)

WORDS = (4, 16, 48, 96)
"""Lengths of the candidates in words, from a short phrase up to the usual token limit."""
MOST_CANDIDATES = 8
"""The most candidates of a warm-up batch, unless there are more processors."""
MOST_WORDS = 400
"""The most words of a warm-up batch. It is large enough to be typical, and so small that one stage delays live requests
by less than 10 ms on two processors."""
ROUNDS = 2
"""The runs of each batch; the first one is not measured."""
LONGEST_PAIR = 2048
"""The most tokens of the pair that tests a network's positions. Networks with a table of positions have 512 or 514, and
others compute them. A pair of 8,192 tokens would take a network of 22 layers more than a minute."""
QUESTION = "what is a word"
USUAL_TOKENS = 100 * 48
"""Tokens of the question to which `slowest_ms` refers: 100 candidates of 48 tokens."""
PROCESSOR_TOKENS = (128, 8192)
"""The smallest and the largest step on a processor in tokens; larger steps are not faster."""
SIZES = tuple(2**power for power in range(11, 17))
"""The sizes that are tried on a GPU: 2,048 to 65,536 tokens, whose activations the estimate of memory covers."""
ENOUGH = 0.95
"""Share of the best rate that a size must reach to be chosen."""
LONGEST_STEP_SECONDS = 0.1
"""The longest step on a processor. On a GPU, the search ends at a size that takes longer, because questions to serving
versions have to wait for the warm-up's steps."""

Input = tuple[range, EncodedPairs]
"""The stages to run, and their input: pairs, or the texts of a first stage."""


def warm_up(
    backend: Backend[Any],
    encoder: PairEncoder,
    first_encoder: TextEncoder | None = None,
    *,
    step_tokens: int = 0,
    slowest_ms: float = 0.0,
    pause: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> StageSpeeds:
    """Run every stage, and return the measured speeds with the size of a full step.

    `first_encoder` is the encoder of a first stage. The size is `step_tokens`, or is chosen if that is 0. `pause`
    is called before each run. Raises MemoryError when no step fits into memory, and TooSlowError when 100 candidates of
    48 tokens would take longer than `slowest_ms` without drops; `slowest_ms` 0 accepts any speed.
    """
    speeds = StageSpeeds(backend.config.scored_stage_layers)
    for round_ in range(ROUNDS):
        for words in WORDS:
            count = max(usable_processors(), min(MOST_CANDIDATES, MOST_WORDS // words))
            texts = ["word " * words] * count
            for stages, tokens in _inputs(backend.config.scored_stages, encoder, first_encoder, texts):
                state = backend.start(tokens)
                for stage in stages:
                    pause()
                    before = clock()
                    output = backend.run(state, stage)
                    if round_:  # the first round is not measured, because it allocates memory and tunes kernels
                        speeds.observe(stage, tokens.tokens, clock() - before)
                    state = output.state
    inputs = _inputs(backend.config.scored_stages, encoder, first_encoder, ["word " * words for words in WORDS])
    speeds.step_tokens = warm_up_steps(backend, inputs, step_tokens, speeds, pause=pause, clock=clock)
    took = 1000.0 * speeds.alone([USUAL_TOKENS] * backend.config.scored_stages)
    if slowest_ms and took > slowest_ms:
        raise TooSlowError(
            f"100 candidates of 48 tokens take {took:.0f} ms, CERBERANK_SLOWEST_MS allows {slowest_ms:g}"
        )
    return speeds


def run_pair(
    backend: Backend[Any],
    encoder: PairEncoder,
    first_encoder: TextEncoder | None = None,
    *,
    most_tokens: int = LONGEST_PAIR,
) -> None:
    """Run every stage on one candidate of full length, but at most about `most_tokens`, with the largest token id.

    Raises the backend's own error if the network has fewer positions or token ids than config.json says, and
    NonFiniteScoreError.
    """
    for stages, tokens in _inputs(backend.config.scored_stages, encoder, first_encoder, ["word " * most_tokens]):
        ids = tokens.token_ids.copy()
        ids[len(ids) // 2] = largest_token_id((first_encoder if 0 in stages and first_encoder else encoder).tokenizer)
        state = backend.start(replace(tokens, token_ids=ids))
        for stage in stages:
            output = backend.run(state, stage)
            if not np.isfinite(output.scores).all():
                raise NonFiniteScoreError(f"stage {stage} gave a pair of {tokens.tokens} tokens no finite score")
            state = output.state


def _inputs(stages: int, encoder: PairEncoder, first_encoder: TextEncoder | None, texts: list[str]) -> list[Input]:
    """The texts for a first stage, if there is one, and their pairs for the stages of pairs, if there are any."""
    alone = [] if first_encoder is None else [(range(1), first_encoder.candidates(texts))]
    if stages == len(alone):
        return alone
    return [*alone, (range(len(alone), stages), encoder.encode(QUESTION, [Candidate(text=text) for text in texts]))]


def choose_step_tokens(rates: Mapping[int, float]) -> int:
    """The smallest size whose rate, in tokens per second, reaches `ENOUGH` of the best. Raises ValueError if empty.

    >>> choose_step_tokens({2048: 100.0, 4096: 190.0, 8192: 198.0, 16384: 200.0})
    4096
    """
    best = max(rates.values())
    return min(size for size, rate in rates.items() if rate >= ENOUGH * best)


def warm_up_steps(
    backend: Backend[Any],
    inputs: Sequence[Input],
    wanted: int,
    speeds: StageSpeeds,
    *,
    pause: Callable[[], None],
    clock: Callable[[], float],
) -> int:
    """The tokens of a step: `wanted`, or a chosen size if that is 0.

    On a GPU, full steps are run and added to `speeds`, and the backend is prepared for steps of the returned size. A
    step consists of the `inputs`, repeated. Each step runs twice, because the first run also prepares kernels and
    memory. Raises MemoryError when even the smallest size does not fit into memory.
    """
    if backend.device_memory is None:
        least, most = PROCESSOR_TOKENS
        return wanted or max(least, min(speeds.tokens_within(LONGEST_STEP_SECONDS), most))
    rates: dict[int, float] = {}
    for size in (wanted,) if wanted else SIZES:
        steps = [(stages, _repeated(tokens, size)) for stages, tokens in inputs]
        seconds = _run_twice(backend, steps, speeds, pause, clock)
        if seconds is None:
            backend.free_memory()
            logger.warning("a step of %d tokens does not fit into the device's memory", size)
            break
        rates[size] = steps[-1][1].tokens / max(sum(seconds), 1e-9)
        if max(seconds) > LONGEST_STEP_SECONDS:
            break
    if wanted:
        backend.prepare(wanted)
        return wanted
    if not rates:
        raise MemoryError(f"a step of {SIZES[0]} tokens does not fit into the device's memory")
    chosen = choose_step_tokens(rates)
    measured = ", ".join(f"{size}: {rate:.0f}" for size, rate in rates.items())
    logger.info("steps of %d tokens; tokens/s by size of a step: %s", chosen, measured)
    backend.prepare(chosen)
    return chosen


def _repeated(tokens: EncodedPairs, size: int) -> EncodedPairs:
    """The pairs of `tokens`, repeated up to about `size` tokens."""
    return tokens.select(np.arange(max(1, size * len(tokens) // tokens.tokens)) % len(tokens))


def _run_twice(
    backend: Backend[Any],
    steps: Sequence[Input],
    speeds: StageSpeeds,
    pause: Callable[[], None],
    clock: Callable[[], float],
) -> list[float] | None:
    """The seconds of each stage in the second run; None if memory ran out."""
    seconds: list[float] = []
    try:
        for run in range(2):
            for stages, step in steps:
                state = backend.start(step)
                for stage in stages:
                    pause()
                    before = clock()
                    state = backend.run(state, stage).state
                    if run:
                        seconds.append(clock() - before)
                        speeds.observe(stage, step.tokens, seconds[-1])
    except Exception as error:
        if fault_of(error) is not Fault.MEMORY:
            raise
        return None
    return seconds
