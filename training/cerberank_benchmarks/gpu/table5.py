"""Piece `table5`: measures the networks of table 5 of the CERBERUS paper on a batch, and cascades on one question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean, median, stdev

import numpy as np

from cerberank_benchmarks.gpu.ceilings import matmul_rate
from cerberank_benchmarks.gpu.lab import Findings, Lab
from cerberank_benchmarks.gpu.networks import (
    ALBERT_BASE,
    ALBERT_XXLARGE,
    BASE,
    CASCADE,
    LARGE,
    ONE_HEAD,
    THREE_HEADS,
    WHOLE_HEADS,
    Shape,
    equal_pairs,
    operations,
    random_ranker,
)
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.drop import relative_cost
from cerberank_models.encoding import EncodedPairs
from cerberank_models.rank_pairs import rank_pairs

TEXT = (
    "The paper's networks on a batch of 128 pairs, cascades on one question, both as one step, without tokenising, "
    "each stage in the smallest captured graph that holds its tokens; the padding takes time and counts as no "
    "operation. BASE and LARGE stand for RoBERTa and ELECTRA, which have their sizes; these and ALBERT compute every "
    "layer for all tokens; an ensemble runs its three networks one after the other. ms is the median of "
    "the rounds; a candidate has their mean and its standard deviation. The share is of the matmul rate measured "
    "beside it; the op count is the layers run, relative to dropping nothing."
)
PAPER = (
    "The same networks as the paper measured them: fp32, 128 pairs of 128 tokens, without captured graphs, and with "
    "heads that compute all tokens. Its figures fit this length and milliseconds, not the microseconds that it prints. "
    "They are of a V100: only the times relative to BASE can be compared."
)
ALPHAS = (0.0, 0.3, 0.5)
ENSEMBLES = {
    "ensemble of 3 BASE": (BASE, BASE, BASE),
    "ensemble of ALBERT-base and 2 BASE": (ALBERT_BASE, BASE, BASE),
    "ensemble of 3 LARGE": (LARGE, LARGE, LARGE),
}
"""Ensembles: row 12 of table 2, rows 10 and 11, and one that the paper does not have."""
PRINTED = {BASE: 2.0, ALBERT_BASE: 2.3, WHOLE_HEADS: 2.6, LARGE: 6.7, ALBERT_XXLARGE: 47.0}
"""The paper's times for a candidate; those of BASE and LARGE are ELECTRA's."""


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    run: Callable[[], object]
    operations: float
    backends: Sequence[TorchBackend]


def run(lab: Lab) -> Findings:
    """Rows for the networks, ratios of 3H1 to 1H1 and to BASE, rows for the drop ratios, then for larger networks."""
    ceiling, pairs = matmul_rate(lab), equal_pairs(lab, lab.sizes.batch)
    base = [_entry(lab, shape, pairs) for shape in (BASE, ALBERT_BASE, ONE_HEAD, THREE_HEADS)]
    times = _timed(lab, base)
    for entry in base:
        yield _row(entry, times[entry.name], ceiling, len(pairs)) | _graphs(entry)
    seconds = {name: median(each) for name, each in times.items()}
    yield {
        "B11 3H1 / B11 1H1": seconds[THREE_HEADS.name] / seconds[ONE_HEAD.name],
        "B11 3H1 / BASE": seconds[THREE_HEADS.name] / seconds[BASE.name],
    }
    yield from _cascades(lab, equal_pairs(lab, lab.sizes.candidates), ceiling)
    larger = [partial(_entry, lab, shape, pairs) for shape in (LARGE, ALBERT_XXLARGE)]
    larger += [partial(_ensemble, lab, name, pairs) for name in ENSEMBLES]
    for make in larger:  # one after the other, because their weights may not fit into memory together
        entry = make()
        (rounds,) = _timed(lab, [entry]).values()
        yield _row(entry, rounds, ceiling, len(pairs)) | _graphs(entry)
        yield {f"{entry.name} / B11 3H1": median(rounds) / seconds[THREE_HEADS.name]}


def paper(lab: Lab) -> Findings:
    """Rows for the networks in the paper's form, one after the other, each beside the paper's ratio to BASE."""
    lab = replace(lab, precision="fp32", sizes=replace(lab.sizes, tokens=lab.sizes.paper_tokens))
    ceiling, pairs, base = matmul_rate(lab), equal_pairs(lab, lab.sizes.batch), 0.0
    for shape, printed in PRINTED.items():
        backend = lab.backend(random_ranker(lab, shape))
        work = operations(backend.config, len(pairs), lab.sizes.tokens)
        entry = _Entry(shape.name, partial(rank_pairs, backend, pairs), work, [backend])
        (rounds,) = _timed(lab, [entry]).values()
        base = base or median(rounds)
        ratios = {"time / BASE": median(rounds) / base, "the paper's": printed / PRINTED[BASE]}
        yield _row(entry, rounds, ceiling, len(pairs)) | ratios


def _ensemble(lab: Lab, name: str, pairs: EncodedPairs) -> _Entry:
    members = [_backend(lab, shape, seed) for seed, shape in enumerate(ENSEMBLES[name])]
    work = sum(operations(member.config, len(pairs), lab.sizes.tokens) for member in members)
    return _Entry(name, partial(_together, members, pairs), work, members)


def _cascades(lab: Lab, pairs: EncodedPairs, ceiling: float) -> Findings:
    backend = _backend(lab, CASCADE, 0)
    policies = {alpha: backend.config.drop_policy(alpha) for alpha in ALPHAS}
    entries = {
        alpha: _Entry(
            f"{CASCADE.name}, alpha {alpha:g}",
            partial(rank_pairs, backend, pairs, policy),
            operations(backend.config, len(pairs), lab.sizes.tokens, policy),
            [backend],
        )
        for alpha, policy in policies.items()
    }
    times = _timed(lab, list(entries.values()))
    without_drops = median(times[entries[0.0].name])
    for alpha, entry in entries.items():
        time = median(times[entry.name]) / without_drops
        cost = relative_cost(backend.config.stage_layers, policies[alpha].ratios)
        yield (
            _row(entry, times[entry.name], ceiling, len(pairs))
            | _graphs(entry)
            | {
                "time": time,
                "op count": cost,
                "time / op count": time / cost,
            }
        )


def _entry(lab: Lab, shape: Shape, pairs: EncodedPairs) -> _Entry:
    backend = _backend(lab, shape, 0)
    work = operations(backend.config, len(pairs), lab.sizes.tokens)
    return _Entry(shape.name, partial(rank_pairs, backend, pairs), work, [backend])


def _backend(lab: Lab, shape: Shape, seed: int) -> TorchBackend:
    tokens = max(lab.sizes.candidates, lab.sizes.batch) * lab.sizes.tokens
    return lab.backend(random_ranker(lab, shape, seed=seed), graph_tokens=max(lab.sizes.graph_tokens, tokens))


def _timed(lab: Lab, entries: list[_Entry]) -> dict[str, list[float]]:
    return lab.times({entry.name: entry.run for entry in entries})


def _together(members: list[TorchBackend], pairs: EncodedPairs) -> object:
    return np.mean([rank_pairs(member, pairs).scores for member in members], axis=0)


def _row(entry: _Entry, times: list[float], ceiling: float, candidates: int) -> dict[str, float | int | str]:
    seconds = median(times)
    return {
        "network": entry.name,
        "ms": 1000 * seconds,
        "mean ms a candidate": 1000 * mean(times) / candidates,
        "standard deviation": 1000 * stdev(times) / candidates if len(times) > 1 else "one round",
        "pairs/s": candidates / seconds,
        "TFLOP": entry.operations / 1e12,
        "TFLOP/s": entry.operations / seconds / 1e12,
        "share of the matmul rate": entry.operations / seconds / ceiling,
    }


def _graphs(entry: _Entry) -> dict[str, float]:
    hits = sum(backend.counts.graph_hits for backend in entry.backends)
    misses = sum(backend.counts.graph_misses for backend in entry.backends)
    return {"stages as graphs": hits / (hits + misses)}
