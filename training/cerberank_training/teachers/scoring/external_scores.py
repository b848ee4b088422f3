"""A teacher with scores from a file or data set, such as an LLM's judgements or an API's scores.

Caches hold log-odds, `d = log(p / (1 - p))` (CERBERUS's z1 - z0). Each of three forms of scores is converted to them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from scipy.optimize import minimize

from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data import DataError, Question
from cerberank_training.data.question import parse_line, read_lines
from cerberank_training.teachers.pair_keys import Keys, pair_keys
from cerberank_training.teachers.scoring.checkpoint import logit
from cerberank_training.teachers.teacher_reader import Pair
from cerberank_training.teachers.teacher_score_cache import MissingScoreError, TeacherIdentity

Form = Literal["logit", "probability", "score"]
Floats: TypeAlias = NDArray[np.float64]
ExternalScore = tuple[str, str, str, float]
"""The source of the score (for messages), question, text and score."""
CERTAIN = 1e-4
"""Probabilities are limited to [1e-4, 1 - 1e-4], because a probability of 1 would have infinite log-odds."""


NOISE = 1e-4
"""The largest difference between scores of the same pair, which vary with the batch. The lowest score is used."""


class _Line(Frozen):
    model_config = ConfigDict(extra="ignore")

    question: str
    text: str
    score: Annotated[float, Field(allow_inf_nan=False)]


def scores_of_file(path: Path) -> Iterator[ExternalScore]:
    """Read the scores of JSON lines with question, text and score. Other keys are ignored. Raises DataError."""
    for number, line in read_lines(path):
        row = parse_line(_Line, path, number, line)
        yield f"{path}:{number}", row.question, row.text, row.score


def scores_of_data(questions: Iterable[Question]) -> Iterator[ExternalScore]:
    """The scores of the candidates in a data set. Raises DataError for a candidate without a score."""
    for question in questions:
        for row in question.candidates:
            if row.score is None:
                raise DataError(f"question {question.id!r}: the candidate {row.candidate.text!r} has no score")
            yield f"question {question.id!r}", question.text, row.candidate.text, row.score


class ScoreTable:
    """Scores by pair, 16 bytes each."""

    def __init__(self, rows: Iterable[ExternalScore], source: str) -> None:
        """Raise DataError, which names both places, for a pair that occurs twice with different scores."""
        keys, scores, places = array("Q"), array("d"), list[str]()
        for place, question, text, score in rows:
            keys.append(int(pair_keys(question, [Candidate(text=text)], context=False)[0]))
            scores.append(score)
            places.append(place)
        values, numbers = np.asarray(scores, dtype=np.float64), np.asarray(keys, dtype=np.uint64)
        self.source = source
        order = np.lexsort((values, numbers))
        self._keys, first, inverse = np.unique(numbers[order], return_index=True, return_inverse=True)
        self._scores = values[order][first]
        differ = ~np.isclose(values[order], self._scores[inverse], rtol=NOISE, atol=NOISE)
        if differ.any():
            at = int(np.argmax(differ))
            one, other = sorted((int(order[at]), int(order[first[inverse[at]]])))
            raise DataError(
                f"{places[other]}: the pair has the score {values[other]:g}, and {values[one]:g} in {places[one]}"
            )

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self._keys)

    @property
    def revision(self) -> str:
        """A hash of all pairs and scores, independent of their order."""
        return hashlib.sha256(self._keys.astype("<u8").tobytes() + self._scores.astype("<f8").tobytes()).hexdigest()

    def scores(self, keys: Keys) -> Floats:
        """The scores of pairs; NaN for a pair without a score."""
        if not len(self._keys):
            return np.full(len(keys), np.nan)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[rows] == keys, self._scores[rows], np.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExternalTeacher:
    """A teacher that looks its scores up in a table."""

    table: ScoreTable
    identity: TeacherIdentity
    to_log_odds: Callable[[Floats], Floats]
    unused: int
    """The number of pairs in the table that are not in the data."""

    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        """The log-odds of pairs of the data that the teacher was made for."""
        keys = [pair_keys(question, [candidate], context=False) for question, candidate in pairs]
        return self.to_log_odds(self.table.scores(np.concatenate(keys))).astype(np.float32)


def external_teacher(name: str, table: ScoreTable, questions: Iterable[Question], form: Form) -> ExternalTeacher:
    """A teacher for the questions, called `name`.

    Raises MissingScoreError when pairs have no score, and ValueError for probabilities out of range and when
    `platt_scaling` cannot be fitted for the form `score`.
    """
    parts, labels, lacking, example = [np.empty(0, dtype=np.uint64)], list[bool](), 0, ""
    for question in questions:
        candidates = [row.candidate for row in question.candidates]
        parts.append(pair_keys(question.text, candidates, context=False))
        labels += [row.relevant for row in question.candidates]
        if (gaps := np.isnan(table.scores(parts[-1]))).any():
            lacking += int(gaps.sum())
            text = candidates[int(np.argmax(gaps))].text
            example = example or f"the candidate {text!r} of the question {question.text!r}"
    if lacking:
        raise MissingScoreError(f"{table.source}: {lacking} of {len(labels)} pairs have no score, such as {example}")
    keys = np.concatenate(parts)
    scores, how = table.scores(keys), f"given/{form}"
    convert: Callable[[Floats], Floats] = np.asarray
    if form == "probability":
        if len(scores) and not (scores.min() >= 0 and scores.max() <= 1):
            raise ValueError(
                f"{table.source}: probabilities are from 0 to 1, and scores are from {scores.min():g} to "
                f"{scores.max():g}; --as logit and --as score read others"
            )
        convert = _of_probabilities
    elif form == "score":
        slope, offset = platt_scaling(scores, np.asarray(labels))
        how = f"given/score * {slope:.6g} + {offset:.6g}"
        convert = lambda values: slope * values + offset  # noqa: E731 - one line each
    identity = TeacherIdentity(
        name=name,
        revision=table.revision,
        precision=how,
        max_length=1,  # no text was cut
        context=False,
    )
    unused = len(table) - len(np.unique(keys))
    return ExternalTeacher(table=table, identity=identity, to_log_odds=convert, unused=unused)


def platt_scaling(scores: Floats, relevant: NDArray[np.bool_]) -> tuple[float, float]:
    """Slope and offset that turn scores into log-odds of relevance, by logistic regression (Platt 1999).

    Labels are smoothed as in the paper, so that the slope is finite even if the scores separate the labels. Raises
    ValueError when labels or scores are all equal, and when irrelevant texts have the higher scores.
    """
    positives, negatives = int(relevant.sum()), int((~relevant).sum())
    if not positives or not negatives:
        raise ValueError("--as score fits scores to labels, and all labels of the data are equal")
    mean, spread = float(scores.mean()), float(scores.std())
    if not spread:
        raise ValueError(f"--as score: all scores are {mean:g}")
    standard = (scores - mean) / spread
    target = np.where(relevant, (positives + 1) / (positives + 2), 1 / (negatives + 2))

    def loss(line: Floats) -> tuple[float, Floats]:
        log_odds = line[0] * standard + line[1]
        error = 1 / (1 + np.exp(-log_odds)) - target
        value = np.logaddexp(0, log_odds) - target * log_odds
        return float(value.mean()), np.asarray([(error * standard).mean(), error.mean()])

    slope, offset = minimize(loss, np.zeros(2), jac=True, method="BFGS").x.tolist()
    if slope <= 0:
        raise ValueError("--as score: irrelevant texts have the higher scores; change their sign, or use --as logit")
    return slope / spread, offset - slope * mean / spread


def _of_probabilities(values: Floats) -> Floats:
    return logit(np.clip(values, CERTAIN, 1 - CERTAIN)).astype(np.float64)
