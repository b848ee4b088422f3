"""WikiQA's TSV: QuestionID, Question, DocumentID, DocumentTitle, SentenceID, Sentence, Label.

Quoting is off, because some sentences contain a single quotation mark. Candidates are the sentences of a page's first
section in order, so that neighbouring rows are context.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines, with_neighbours

COLUMNS = ["QuestionID", "Question", "DocumentID", "DocumentTitle", "SentenceID", "Sentence", "Label"]


def read_wikiqa(path: Path) -> list[Question]:
    """All questions of the file, including questions without a positive, which `subset` removes."""
    rows = []
    for number, line in read_lines(path):
        columns = line.rstrip("\r").split("\t")
        if number == 1 and columns == COLUMNS:
            continue
        if len(columns) != len(COLUMNS) or columns[-1] not in {"0", "1"}:
            raise DataError(f"{path}:{number}: expected {len(COLUMNS)} tab-separated columns ending in a label 0 or 1")
        rows.append(columns)
    questions = []
    for identifier, group in groupby(rows, key=lambda row: row[0]):
        lines = list(group)
        candidates = with_neighbours([line[5] for line in lines])
        questions.append(
            Question(
                id=identifier,
                text=lines[0][1],
                candidates=tuple(
                    LabelledCandidate(candidate, int(line[6]))
                    for candidate, line in zip(candidates, lines, strict=True)
                ),
                title=repair_title(lines[0][3]),
            )
        )
    return questions


def repair_title(title: str) -> str:
    """Undo the double encoding of a title, which 71 titles of the corpus have.

    >>> repair_title("BeyoncÃ©"), repair_title("Beyoncé")
    ('Beyoncé', 'Beyoncé')
    """
    try:
        return title.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return title
