"""ASNQ's TSV: question, sentence, label 1-4. Rows of one question are adjacent.

Label 4 is positive: the sentence is in the long answer and contains the short one. Labels 1-3 are negatives.

The released dev.tsv has both the dev and the test questions of the papers, 1,336 each. `dev.tsv?questions=unique.dev`
reads only the questions of a list, with one on each line, which the authors of the Cascade Transformer released.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data.format import Format
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines
from cerberank_training.data.source_files import source_files

RELEASED = 2672
"""The number of questions of the released dev.tsv, dev and test together."""


class AsnqOptions(Frozen):
    """The options after the question mark."""

    questions: str = ""
    """A file with a question on each line, relative to the data's folder; other questions are left out."""


def _read(place: Path, options: AsnqOptions, notes: Notes) -> Iterator[Question]:
    """Yield questions one by one, because the training file has 23.7 million rows. ASNQ has no context.

    Raises DataError for a malformed row, and after the last row for listed questions that are not in the data.
    """
    listed = _listed(place.parent / options.questions) if options.questions else None
    seen = set[str]()
    for index, (text, group) in enumerate(groupby(_rows(place), key=lambda row: row[0])):
        if listed is not None:
            if folded(text) not in listed:
                continue
            seen.add(folded(text))
        candidates = tuple(
            LabelledCandidate(Candidate(text=sentence), int(label == "4")) for _, sentence, label in group
        )
        yield Question(id=f"{place.name}:{index}", text=text, candidates=candidates)
    if listed is not None and (missing := len(listed - seen)):
        raise DataError(f"{place} lacks {missing} of the {len(listed)} questions that {options.questions} lists")


def _files(place: Path, options: AsnqOptions) -> list[Path]:
    """The data file, and the file with the list of questions if there is one."""
    return [*source_files(place), *([place.parent / options.questions] if options.questions else [])]


def _listed(path: Path) -> set[str]:
    if not (listed := {folded(line) for _, line in read_lines(path)} - {""}):
        raise DataError(f"{path} lists no question")
    return listed


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in read_lines(path):
        columns = line.rstrip("\r").split("\t")
        if len(columns) != 3 or columns[2] not in {"1", "2", "3", "4"}:
            raise DataError(f"{path}:{number}: expected question, sentence and a label 1-4, separated by tabs")
        yield columns[0], columns[1], columns[2]


ASNQ = Format(name="asnq", options=AsnqOptions, read=_read, files=_files, streamed=True)
