"""Reads TrecQA (Wang et al., 2007) from lines of JSON, the form of the files `*-filtered.jsonl` that TANDA names.

A line is a question with its `candidates`: objects with `sentence` or `answer`, and `label`. A file may be compressed,
with `.gz` after its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cerberank_models.encoding import Candidate
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_json_lines

LABELS: Mapping[str, int] = MappingProxyType({"0": 0, "1": 1, "0.0": 0, "1.0": 1})


def read_trecqa(path: Path) -> list[Question]:
    """All questions that have a candidate, in the order of the file. Raises DataError with file and line.

    As in the raw splits (82 questions in dev, 100 in test), questions without a positive or a negative are included.
    The subset `strict` is the clean split (69 and 68 questions; others print 65 for dev). Lines with the same text of
    the question are one question.
    """
    groups: dict[str, list[LabelledCandidate]] = {}
    for number, row in read_json_lines(path):
        try:
            question = str(row["question"])
            for each in row["candidates"]:
                text, label = str(each["sentence" if "sentence" in each else "answer"]), str(each["label"])
                if label not in LABELS:
                    raise DataError(f"{path}:{number}: the label is 0 or 1, not {label!r}")
                groups.setdefault(question, []).append(LabelledCandidate(Candidate(text=text), LABELS[label]))
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: expected a question, and candidates with answer and label") from error
    if not groups:
        raise DataError(f"{path} holds no question with an answer")
    return [Question(id=text, text=text, candidates=tuple(rows)) for text, rows in groups.items()]
