"""Turns rows of tables into questions. The columns tell which of three shapes a table has.

question, text, label                      a row is a pair; rows with the same question are its candidates
question, texts [list], labels [list]      a row is a question
question, positive, negative_1 ... n       rows with the same question are joined (sentence-transformers); lists too
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from typing import Any

from cerberank_models.encoding import Candidate
from cerberank_training.data.formats.columns import Columns
from cerberank_training.data.formats.joined import joined
from cerberank_training.data.notes import Notes, ignored
from cerberank_training.data.question import DataError, LabelledCandidate, Question, naming

Row = tuple[str, Mapping[str, Any]]
"""The place of a row (for messages) and its values by column."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table with its columns."""

    rows: Iterable[Row]
    columns: Columns
    place: str
    """The name of the table."""
    notes: Notes
    together: bool = False
    """True if the pairs of a question must be adjacent, so that memory need not hold all pairs."""

    def questions(self) -> Iterator[Question]:
        """Yield the questions. Raises DataError with the place of a wrong row, and for a table without rows."""
        questions = self._joined() if self.columns.positive else self._pairs_or_lists()
        first = next(questions, None)
        if first is None:
            raise DataError(f"{self.place} holds no row")
        yield first
        yield from questions

    def _joined(self) -> Iterator[Question]:
        """The questions of rows with positives and negatives."""
        return joined(self._positives(), lambda each: each.id if self.columns.id else each.text, self.notes)

    def _positives(self) -> Iterator[Question]:
        """Yield a question for each row."""
        columns, texts = self.columns, dict[str, int]()
        for number, (place, row) in enumerate(self.rows, start=1):
            with naming(place):
                positives, negatives = _texts(row, (columns.positive,)), _texts(row, columns.negatives)
                if not positives:
                    raise DataError(f"{columns.positive!r} holds no text")
                scores = _scores(row, columns.positive_score, len(positives))
                scores += _scores(row, columns.negative_score, len(negatives))
                labels = [1] * len(positives) + [0] * len(negatives)
                question = self._question(row, number, _labelled([*positives, *negatives], labels, scores))
                if columns.id and texts.setdefault(question.id, hash(question.text)) != hash(question.text):
                    raise DataError(f"the question id {question.id!r} has two texts")
            yield question

    def _pairs_or_lists(self) -> Iterator[Question]:
        rows = iter(self.rows)
        first = next(rows, None)
        if first is None:
            return
        every = chain([first], rows)
        yield from self._lists(every) if isinstance(first[1][self.columns.text], list) else self._pairs(every)

    def _lists(self, rows: Iterable[Row]) -> Iterator[Question]:
        columns, seen = self.columns, set[str]()
        around = [name for name in (columns.previous, columns.next) if name]
        for number, (place, row) in enumerate(rows, start=1):
            self.notes.update(ignored(around))
            with naming(place):
                texts = _texts(row, (columns.text,))
                values = row[columns.label]
                if not texts or not isinstance(values, list) or len(values) != len(texts):
                    raise DataError(
                        f"{columns.text!r} and {columns.label!r} are not lists of equal length, or are empty"
                    )
                graded = [self._label(value) for value in values]
                scores = _scores(row, columns.score, len(texts)) if columns.score else [score for _, score in graded]
                labels = [label for label, _ in graded]
                question = self._question(row, number, _labelled(texts, labels, scores))
                if columns.id and question.id in seen:
                    raise DataError(f"the question id {question.id!r} comes twice")
            seen.add(question.id)
            yield question

    def _question(self, row: Mapping[str, Any], number: int, candidates: list[LabelledCandidate]) -> Question:
        identifier = str(row[self.columns.id]) if self.columns.id else str(number)
        return Question(id=identifier, text=_string(row, self.columns.question), candidates=tuple(candidates))

    def _pairs(self, rows: Iterable[Row]) -> Iterator[Question]:
        """Collect pairs by question, in the whole table; with `together`, the pairs of a question must be adjacent."""
        groups: dict[str, tuple[str, list[LabelledCandidate]]] = {}
        ended: set[int] = set()
        for place, row in rows:
            with naming(place):
                text = _string(row, self.columns.question)
                key = str(row[self.columns.id]) if self.columns.id else text
                if self.together and key not in groups:
                    yield from _finished(groups)
                    ended.update(map(hash, groups))
                    groups.clear()
                    if hash(key) in ended:
                        raise DataError(f"rows of the question {key!r} do not stand together; sort so large a file")
                question, candidates = groups.setdefault(key, (text, []))
                if question != text:
                    raise DataError(f"the question id {key!r} has two texts, {question!r} and {text!r}")
                candidates.append(self._pair(row))
        yield from _finished(groups)

    def _pair(self, row: Mapping[str, Any]) -> LabelledCandidate:
        columns = self.columns
        label, score = self._label(row[columns.label])
        if columns.score:
            (score,) = _scores(row, columns.score, 1)
        present = [name for name in ("previous", "next") if row.get(getattr(columns, name)) is not None]
        around = {name: _string(row, getattr(columns, name)) for name in present}
        return LabelledCandidate(Candidate(text=_string(row, columns.text), **around), label, score)

    def _label(self, value: Any) -> tuple[int, float | None]:
        """The grade, and the score if the options have a threshold. Booleans may be words, as pandas writes them."""
        words = {"true": 1, "false": 0}
        number = _number(words.get(value.lower(), value) if isinstance(value, str) else value, self.columns.label)
        if self.columns.threshold is not None:
            return int(number >= self.columns.threshold), number
        if number < 0 or number != int(number):
            raise DataError(
                f"the label {value!r} is not a whole number from 0 on; threshold=NUMBER says what is relevant"
            )
        return int(number), None


def _labelled(texts: Sequence[str], labels: Sequence[int], scores: Sequence[float | None]) -> list[LabelledCandidate]:
    rows = zip(texts, labels, scores, strict=True)
    return [LabelledCandidate(Candidate(text=text), label, score) for text, label, score in rows]


def _finished(groups: Mapping[str, tuple[str, list[LabelledCandidate]]]) -> Iterator[Question]:
    for key, (text, candidates) in groups.items():
        yield Question(id=key, text=text, candidates=tuple(candidates))


def _string(row: Mapping[str, Any], column: str) -> str:
    value = row[column]
    if not isinstance(value, str):
        raise DataError(f"{column!r} holds {value!r}, which is not text")
    return value


def _texts(row: Mapping[str, Any], columns: Iterable[str]) -> list[str]:
    """The texts of some columns, whose values are a text, a list of texts, or missing."""
    texts: list[str] = []
    for column in columns:
        value = row[column]
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(text, str) for text in values):
            raise DataError(f"{column!r} holds {value!r}, which is neither a text nor a list of texts")
        texts += values
    return texts


def _scores(row: Mapping[str, Any], column: str, count: int) -> list[float | None]:
    """The scores of `count` texts; None where there is no column of scores, and for null and empty fields."""
    if not column:
        return [None] * count
    value = row[column]
    values = value if isinstance(value, list) else [value]
    if len(values) != count:
        raise DataError(f"{column!r} has {len(values)} scores for {count} texts")
    return [None if each in (None, "") else _number(each, column) for each in values]


def _number(value: Any, column: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not isfinite(number):
        raise DataError(f"{column!r} holds {value!r}, which is not a finite number")
    return number
