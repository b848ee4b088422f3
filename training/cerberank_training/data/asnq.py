"""ASNQ's TSV: question, sentence, label 1-4. Label 4 is positive: the sentence lies in the long answer
and holds the short one; labels 1-3 are negatives. Rows of one question stand together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from cerberank_models.encoding import Candidate
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines


def read_asnq(path: Path) -> Iterator[Question]:
    """Yield questions one by one, because the training file has 23.7 million rows. ASNQ has no context."""
    for index, (text, group) in enumerate(groupby(_rows(path), key=lambda row: row[0])):
        candidates = tuple(
            LabelledCandidate(Candidate(text=sentence), int(label == "4")) for _, sentence, label in group
        )
        yield Question(id=f"{path.name}:{index}", text=text, candidates=candidates)


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in read_lines(path):
        columns = line.rstrip("\r").split("\t")
        if len(columns) != 3 or columns[2] not in {"1", "2", "3", "4"}:
            raise DataError(f"{path}:{number}: expected question, sentence and a label 1-4, separated by tabs")
        yield columns[0], columns[1], columns[2]
