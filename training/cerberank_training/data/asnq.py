"""ASNQ's TSV: question, sentence, label 1-4. Label 4 is positive: the sentence lies in the long answer
and holds the short one; labels 1-3 are negatives. Rows of one question stand together.

The released dev.tsv holds the papers' dev and test questions together, 1,336 each: `dev.tsv?questions=unique.dev` reads
those that stand in a list, one a line, as the Cascade Transformer's authors released it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data.options import parse_options
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines
from cerberank_training.data.source_files import plain_files

RELEASED = 2672
"""Questions of the released dev.tsv: dev and test."""


class Options(Frozen):
    """The options behind the question mark."""

    questions: str = ""
    """A file with a question on each line, relative to the data's folder; other questions are left out."""


def read_asnq(path: Path) -> Iterator[Question]:
    """Yield questions one by one, because the training file has 23.7 million rows. ASNQ has no context.

    Raises DataError for a row that is none of ASNQ's, and after the last row for listed questions that the data lack.
    """
    place, options = parse_options(Options, "asnq", path)
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


def asnq_files(path: Path) -> dict[str, Path]:
    """The file, and the list of questions if one is named."""
    place, options = parse_options(Options, "asnq", path)
    return plain_files(place, [place.parent / options.questions] if options.questions else ())


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
