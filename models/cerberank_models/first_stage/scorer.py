"""Computes scores from the vectors of a question and of its candidates, by TRMD's rankers in NumPy.

It runs on a worker's thread, not on the device. Legend: n is the number of candidates, D the width of the encoder, P
the width of ColBERT's token vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores, Vector, probability
from cerberank_models.text_config import TextRankerConfig

Floats = NDArray[np.float32]
BLOCK = 1 << 20
"""The most numbers of candidates' vectors, or of similarities, in float32 at once, so that they stay in the cache."""


RESIDUAL = ("dense.weight", "dense.bias", "output.weight", "output.bias")
"""The names of a residual ranker's weights, as in `network/text_ranker.py`."""


def weight_shapes(config: TextRankerConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of a first stage's rankers, by name."""
    width = config.transformer.hidden_size
    shapes = ((width, width), (width,), (1, width), (1,))
    return {
        f"{ranker}.{part}": shape
        for ranker in config.weighted_rankers
        for part, shape in zip(RESIDUAL, shapes, strict=True)
    }


class FirstStageScorer:
    """Scores a question's candidates in float32. Threads may share an instance, because scoring changes nothing.

    Without dropout a residual ranker is linear in its maximum x (TRMD section 2.1):
    `o . (W x + b + x) + c = (W^T o + o) . x + (o . b + c)`, which takes D products instead of D * D.
    """

    def __init__(self, config: TextRankerConfig, weights: Mapping[str, NDArray[np.floating]]) -> None:
        """Use `weights`, by their names in a `TextRanker`. Only residual rankers have weights.

        Raises ValueError for missing or unknown weights, or weights of another shape.
        """
        width = config.transformer.hidden_size
        shapes = weight_shapes(config)
        if shapes != (actual := {name: array.shape for name, array in weights.items()}):
            wrong = sorted(name for name in {**shapes, **actual} if shapes.get(name) != actual.get(name))
            raise ValueError(
                f"weights of the first stage's rankers are missing, unknown or misshapen: {', '.join(wrong)}"
            )
        self._config = config
        self._fixed = config.fixed_width
        self._slope = np.zeros(self._fixed, dtype=np.float32)
        self._constant = 0.0
        for place, ranker in enumerate(config.weighted_rankers):
            dense, bias, output, offset = (weights[f"{ranker}.{part}"].astype(np.float64) for part in RESIDUAL)
            self._slope[place * width : (place + 1) * width] = output[0] @ dense + output[0]
            self._constant += float(output[0] @ bias + offset[0])

    def __call__(self, question: Vector, candidates: Sequence[Vector]) -> Scores:
        """P(relevant) of each candidate, `[n]`.

        - For `dot` it is (1 + cosine) / 2.
        - For a public ColBERT it is (1 + c) / 2, where c is the mean over the question's tokens of the largest cosine.
          The sum of up to 32 cosines was not trained as a logit, and its sigmoid would be near 1 for all candidates.
        - For all others it is the sigmoid of the rankers' sum.

        Raises ValueError for vectors that do not fit this first stage.
        """
        self._check([question, *candidates])
        wide = question.astype(np.float32)
        values = [self._values(wide, block) for block in _blocks(candidates)]
        raw = np.concatenate(values) if values else np.zeros(0, dtype=np.float32)
        if self._config.token_ranker == "dot":
            return np.clip((1.0 + raw.astype(np.float64)) / 2.0, 0.0, 1.0)
        if self._config.encoding.colbert is not None and self._config.first_ranker is None:
            tokens = len(question) // self._config.projection
            return np.clip((1.0 + raw.astype(np.float64) / tokens) / 2.0, 0.0, 1.0)
        return probability(raw + np.float32(self._constant))

    def _values(self, question: Floats, candidates: Sequence[Vector]) -> Floats:
        if self._config.token_ranker == "colbert":
            values = late_interaction(question[self._fixed :], candidates, self._fixed, self._config.projection)
            return (
                values + self._linear(question, [each[: self._fixed] for each in candidates]) if self._fixed else values
            )
        if self._config.token_ranker == "dot":
            product: Floats = widened(np.concatenate(candidates)).reshape(-1, self._fixed) @ question
            return product
        return self._linear(question, candidates)

    def _linear(self, question: Floats, candidates: Sequence[Vector]) -> Floats:
        wide = widened(np.concatenate(candidates)).reshape(-1, self._fixed)
        values: Floats = np.maximum(wide, question[: self._fixed], out=wide) @ self._slope
        return values

    def _check(self, vectors: Sequence[Vector]) -> None:
        tokens = self._config.projection if self._config.token_ranker == "colbert" else 0
        for size in {len(vector) for vector in vectors}:
            rest = size - self._fixed
            if not (rest > 0 and rest % tokens == 0 if tokens else rest == 0):
                kind = f"{self._fixed} and a multiple of {tokens}" if tokens else str(self._fixed)
                raise ValueError(f"a vector has {size} numbers, this first stage's have {kind}")


def late_interaction(question: Floats, candidates: Sequence[Vector], skipped: int, projection: int) -> Floats:
    """The sum over a question's token vectors `[q * P]` of the largest similarity to a candidate's, `[n]`.

    The first `skipped` numbers of a candidate's vector do not belong to token vectors. Each candidate must have at
    least one token vector.
    """
    parts = [each[skipped:] for each in candidates]
    tokens = widened(np.concatenate(parts)).reshape(-1, projection)
    starts = np.cumsum([0, *(len(part) // projection for part in parts[:-1])])
    similarity = tokens @ question.reshape(-1, projection).T
    best: Floats = np.maximum.reduceat(similarity, starts, axis=0).sum(axis=1)
    return best


def widened(halves: NDArray[np.float16]) -> Floats:
    """The same numbers in float32. NumPy's own conversion takes five times as long: 1.5 ms for 2,000 vectors of 384.

    The bits of a number are shifted to their places in float32, which divides the number by 2^112. This is exact for
    subnormal numbers too.
    """
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70002000)  # the shift leaves four copies of the sign bit; only the first is kept
    wide = bits.view(np.float32)
    wide *= np.float32(2.0**112)
    finite = wide.max(initial=0.0) < 2.0**16 and wide.min(initial=0.0) > -(2.0**16)
    return wide if finite else halves.astype(np.float32)  # infinity and NaN have a special exponent


def _blocks(candidates: Sequence[Vector]) -> Iterator[Sequence[Vector]]:
    """Groups of consecutive candidates with at most `BLOCK` numbers together, but at least one candidate."""
    start, size = 0, 0
    for row, vector in enumerate(candidates):
        if size + len(vector) > BLOCK and row > start:
            yield candidates[start:row]
            start, size = row, 0
        size += len(vector)
    if start < len(candidates):
        yield candidates[start:]
