"""Questions as an Arrow table in memory or in a mapped file, so that training needs no list of all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cerberank_models.encoding import Candidate
from cerberank_models.tokens import replace_surrogates
from cerberank_training.data.arrow_files import grouped, stored_batches
from cerberank_training.data.question import LabelledCandidate, Question

CANDIDATE = pa.struct(
    [
        ("text", pa.string()),
        ("previous", pa.string()),
        ("next", pa.string()),
        ("label", pa.int32()),
        ("score", pa.float64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("title", pa.string()),
        ("paragraph", pa.int32()),
        ("answers", pa.list_(pa.string())),
        ("missed", pa.list_(pa.int32())),
        ("candidates", pa.list_(CANDIDATE)),
    ]
)
QuestionTexts = tuple[str, Sequence[Candidate]]
"""The text of a question and its candidates."""
LAYOUT = 3
"""The version of the layout, and of what readers make of files; tables of another version are written again."""


class QuestionTable(Sequence[Question]):
    """Questions, or single pairs, that are created on access, in the order of the data."""

    def __init__(self, batches: Sequence[Any]) -> None:
        """Use record batches of SCHEMA. Memory holds 24 bytes for each question."""
        self._batches = batches
        self._starts = np.asarray([0, *accumulate(len(batch) for batch in batches)], dtype=np.int64)
        lists = [batch.column("candidates") for batch in batches]
        self.sizes: NDArray[np.int64] = _joined(rows.value_lengths().to_numpy() for rows in lists)
        """The number of candidates of each question [Q]."""
        self.positives: NDArray[np.int64] = _joined(
            np.add.reduceat(rows.values.field("label").to_numpy() > 0, rows.offsets.to_numpy()[:-1]) for rows in lists
        )
        """The number of relevant candidates of each question [Q]."""

    @classmethod
    def of(cls, questions: Iterable[Question]) -> QuestionTable:
        """The questions as a table in memory; a table is returned as it is."""
        return questions if isinstance(questions, QuestionTable) else cls(list(_batches(questions)))

    def __len__(self) -> int:
        """The number of questions."""
        return int(self._starts[-1])

    @overload
    def __getitem__(self, index: int) -> Question: ...

    @overload
    def __getitem__(self, index: slice) -> list[Question]: ...

    def __getitem__(self, index: int | slice) -> Question | list[Question]:
        """The question at `index`, with all candidates; raises IndexError."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        batch, row = self._place(range(len(self))[index])
        values = {name: batch.column(name)[row].as_py() for name in SCHEMA.names}
        return Question(
            **values
            | {
                "answers": tuple(values["answers"]),
                "missed": tuple(values["missed"]),
                "candidates": tuple(_candidate(fields) for fields in values["candidates"]),
            }
        )

    def pair(self, question: int, candidate: int) -> tuple[str, LabelledCandidate]:
        """The text of a question and one of its candidates; the others are not read."""
        batch, row = self._place(question)
        lists = batch.column("candidates")
        return batch.column("text")[row].as_py(), _candidate(
            lists.values[lists.offsets[row].as_py() + candidate].as_py()
        )

    def question_texts(self) -> Iterator[str]:
        """The text of every question, in order. Candidates are not read."""
        return chain.from_iterable(batch.column("text").to_pylist() for batch in self._batches)

    def texts(self, chosen: NDArray[np.bool_] | None = None, *, relevant: bool = False) -> Iterator[QuestionTexts]:
        """Yield the text and the candidates of all questions in order, or of those with a true flag in `chosen` [Q].

        With `relevant`, only relevant candidates. Whole columns are read, which takes a tenth of the time of
        `self[index]`.
        """
        for first, batch in zip(self._starts.tolist(), self._batches, strict=False):
            if chosen is not None and not chosen[first : first + len(batch)].any():
                continue
            lists = batch.column("candidates")
            columns = [lists.values.field(name).to_pylist() for name in ("text", "previous", "next")]
            labels, ends = lists.values.field("label").to_pylist(), lists.offsets.to_pylist()
            for row, question in enumerate(batch.column("text").to_pylist()):
                if chosen is None or chosen[first + row]:
                    yield (
                        question,
                        [
                            Candidate(text=columns[0][place], previous=columns[1][place], next=columns[2][place])
                            for place in range(ends[row], ends[row + 1])
                            if not relevant or labels[place] > 0
                        ],
                    )

    def _place(self, question: int) -> tuple[Any, int]:
        """The batch of a question, and the question's row in it."""
        number = int(np.searchsorted(self._starts, question, side="right")) - 1
        return self._batches[number], question - int(self._starts[number])


def stored_table(
    source: Path, questions: Iterable[Question], *, options: str = "", files: Sequence[Path] = (), most: int
) -> QuestionTable:
    """The questions in memory if they take less than `most` bytes, and else in a table beside the file or folder.

    See `stored_batches`. If there is a current table, `questions` is not read.
    """
    batches = stored_batches(source, _batches(questions), layout=LAYOUT, options=options, files=files, most=most)
    return QuestionTable(batches)


def _batches(questions: Iterable[Question]) -> Iterator[Any]:
    """Record batches of the questions."""
    return map(_batch, grouped(questions, _characters))


def _characters(question: Question) -> int:
    texts = (row.candidate for row in question.candidates)
    return sum(len(each.text) + len(each.previous) + len(each.next) for each in texts)


def _batch(questions: Sequence[Question]) -> Any:
    rows = [row for question in questions for row in question.candidates]
    fields: list[list[Any]] = [
        [replace_surrogates(getattr(row.candidate, name)) for row in rows] for name in ("text", "previous", "next")
    ]
    fields += [[row.label for row in rows], [row.score for row in rows]]
    values = pa.StructArray.from_arrays(
        [pa.array(column, field.type) for column, field in zip(fields, CANDIDATE, strict=True)], fields=list(CANDIDATE)
    )
    ends = accumulate(len(question.candidates) for question in questions)
    candidates = pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), values)
    columns = [
        pa.array([_storable(getattr(question, field.name)) for question in questions], field.type)
        for field in SCHEMA
        if field.name != "candidates"
    ]
    return pa.RecordBatch.from_arrays([*columns, candidates], schema=SCHEMA)


def _storable(value: Any) -> Any:
    """Replace lone surrogates, which Arrow's strings cannot contain."""
    return replace_surrogates(value) if isinstance(value, str) else value


def _candidate(fields: dict[str, Any]) -> LabelledCandidate:
    candidate = Candidate(text=fields["text"], previous=fields["previous"], next=fields["next"])
    return LabelledCandidate(candidate, fields["label"], fields["score"])


def _joined(parts: Iterable[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int64)
