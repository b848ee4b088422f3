"""The per-question file: a JSON line for each question, with labels and with each ranking's metrics, ranks and scores.

`cerberank evaluate --per-question` and `results ensemble` write such files; the commands of `results`
and `evaluate --agreement` read them. A hash of the candidates shows if two files rank the same candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from cerberank_models.backends.stage_contract import Scores
from cerberank_models.transformer import Frozen
from cerberank_training.data import DataError, Question
from cerberank_training.data.question import parse_line, read_lines
from cerberank_training.evaluation.measures import Measure, expected_measures
from cerberank_training.evaluation.question_metrics import QuestionMetrics

Finite = Annotated[float, Field(allow_inf_nan=False)]
Label = Annotated[int, Field(ge=0)]
Place = Annotated[int, Field(ge=0)]


class RankingRecord(Frozen):
    """One ranking of a question's n candidates."""

    metrics: dict[str, Finite]
    """The expected values (0 to 1); empty for a question without a positive."""
    ranks: tuple[Place, ...]
    """The rank of each candidate. Rank 0 is best, and equal ranks are ties."""
    scores: tuple[Finite, ...] | None = None
    """The scores; None if they are not comparable because candidates were dropped."""


class QuestionRecord(Frozen):
    """One line of the file."""

    id: str
    candidates: str
    """A hash of the texts of the question and of the candidates, in order."""
    labels: tuple[Label, ...]
    """The candidates' labels; empty if there are no candidates because all relevant documents were missed."""
    missed: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """The grades of relevant documents that are not candidates."""
    judgements: str | None = None
    """A hash of the query's judgements, for a run with qrels. Rankings of different documents are comparable if it is
    equal."""
    rankings: dict[str, RankingRecord]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.labels and not self.missed:
            raise ValueError("a question needs a candidate")
        for name, ranking in self.rankings.items():
            for values in (ranking.ranks, ranking.scores):
                if values is not None and len(values) != len(self.labels):
                    raise ValueError(f"{name}: {len(values)} ranks or scores for {len(self.labels)} labels")
        return self

    @property
    def answerable(self) -> bool:
        """True if metrics are defined, because there is a relevant document, which need not be a candidate."""
        return any(self.labels) or bool(self.missed)

    def ranks(self, ranking: str) -> NDArray[np.int64]:
        """The ranks [n] of one ranking."""
        return np.asarray(self.rankings[ranking].ranks, dtype=np.int64)

    def values(self, ranking: str, measures: Mapping[str, Measure]) -> dict[str, float]:
        """The measures' values (0 to 1) of one ranking; 0 without a relevant document."""
        return expected_measures(measures, np.asarray(self.labels), self.ranks(ranking), self.missed)


Records = Mapping[str, QuestionRecord]


def candidates_hash(question: Question) -> str:
    """A hash of the texts without context, because systems with different context rank the same candidates."""
    digest = hashlib.sha256()
    for text in (question.text, *(row.candidate.text for row in question.candidates)):
        content = text.encode(errors="surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:32]


def record(
    question: Question,
    *,
    metrics: Mapping[str, QuestionMetrics],
    ranks: Mapping[str, NDArray[np.int64]],
    scores: Mapping[str, Scores],
    judgements: str | None = None,
) -> QuestionRecord:
    """The record of one question; `scores` has only the rankings with comparable scores."""
    return QuestionRecord(
        id=question.id,
        candidates=candidates_hash(question),
        labels=question.labels,
        missed=question.missed,
        judgements=judgements,
        rankings={
            name: RankingRecord(
                metrics=metrics[name].expected if question.answerable else {},
                ranks=tuple(places.tolist()),
                scores=tuple(scores[name].tolist()) if name in scores else None,
            )
            for name, places in ranks.items()
        },
    )


def write_record(file: BinaryIO, line: QuestionRecord) -> None:
    """Append one line."""
    file.write(line.model_dump_json(exclude_none=True).encode() + b"\n")


def read_records(path: Path, *, ranking: str = "final") -> dict[str, QuestionRecord]:
    """The records by question id, in the order of the file.

    Raises DataError with file and line for a malformed line, a repeated question or a question without `ranking`.
    """
    records: dict[str, QuestionRecord] = {}
    for number, line in read_lines(path):
        parsed = parse_line(QuestionRecord, path, number, line)
        if parsed.id in records:
            raise DataError(f"{path}:{number}: question {parsed.id!r} comes twice")
        if ranking not in parsed.rankings:
            raise DataError(f"{path}:{number}: no ranking {ranking!r}; there are: {', '.join(parsed.rankings)}")
        records[parsed.id] = parsed
    if not records:
        raise DataError(f"{path} holds no question")
    return records


def check_same_candidates(first: tuple[Path, Records], second: tuple[Path, Records]) -> None:
    """Raise DataError, which names a question, if two files have different questions, candidates or labels."""
    _check_pairs(first, second, _same_candidates)


def check_comparable(first: tuple[Path, Records], second: tuple[Path, Records]) -> None:
    """Raise DataError, which names a question, if the questions of two files cannot be compared in pairs.

    They must have the same candidates (`check_same_candidates`), or be runs with the same judgements.
    """
    _check_pairs(first, second, lambda a, b: _same_candidates(a, b) or _same_judgements(a, b))


def _same_candidates(one: QuestionRecord, other: QuestionRecord) -> bool:
    return (one.candidates, one.labels, one.missed) == (other.candidates, other.labels, other.missed)


def _same_judgements(one: QuestionRecord, other: QuestionRecord) -> bool:
    return one.judgements is not None and one.judgements == other.judgements


def _check_pairs(
    first: tuple[Path, Records], second: tuple[Path, Records], fits: Callable[[QuestionRecord, QuestionRecord], bool]
) -> None:
    (path_a, records_a), (path_b, records_b) = first, second
    if differing := sorted(set(records_a) ^ set(records_b)):
        raise DataError(
            f"{path_a} and {path_b} are not over the same questions: {len(differing)} are in one of them alone, "
            f"such as {differing[0]!r}"
        )
    for name, one in records_a.items():
        if not fits(one, records_b[name]):
            raise DataError(f"{path_a} and {path_b} have other candidates or labels for question {name!r}")
