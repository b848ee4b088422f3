"""Reads TrecQA (Wang et al., 2007) in several forms, such as the release of Yao et al. (2013).

The ending of PATH tells the form. A file may be compressed, with `.gz` after its name.

    .xml     `<QApairs id='1.4'>` blocks of `<question>`, `<positive>` and `<negative>`, which are not XML: the
             line after such a tag has the words, between tabs; further lines (parts of speech, parses) are not read
    folder   `id.txt`, `a.toks` (questions), `b.toks` (answers), `sim.txt` (labels): with a line for every pair
    .jsonl   an object for each question, with its candidates: objects with answer or sentence, and label; the files
             `*-filtered.jsonl` that TANDA names have this form (69 questions in dev, 68 in test)

In the `.xml` files positives come first, so that a stable sort of ties would rank perfectly (see
`evaluation/question_metrics.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cerberank_models.encoding import Candidate
from cerberank_training.data.format import Format, NoOptions
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_json_lines, read_lines
from cerberank_training.data.source_files import source_files

BLOCK = re.compile(r"<QApairs id=['\"]([^'\"]*)['\"]>")
TAG = re.compile(r"</?(QApairs|question|positive|negative)\b[^>]*>")
LABELS: Mapping[str, int] = MappingProxyType({"0": 0, "1": 1, "0.0": 0, "1.0": 1})
TOKENS = ("id.txt", "a.toks", "b.toks", "sim.txt")


@dataclass(frozen=True, slots=True)
class _Pair:
    identifier: str
    question: str
    answer: str
    label: int


def _read(path: Path, options: NoOptions, notes: Notes) -> list[Question]:
    """All questions that have a candidate, in the order of the files. Raises DataError with file and line.

    As in the raw splits (82 questions in dev, 100 in test), questions without a positive or a negative are included.
    The subset `strict` is the clean split (69 and 68 questions in the files that TANDA names; others print 65 for dev).
    Pairs without ids belong to the same question if the question's text is the same.
    """
    read = _folder if path.is_dir() else _FORMS.get(path.name.removesuffix(".gz").rpartition(".")[2])
    if read is None:
        raise DataError(f"{path}: TrecQA is a folder, or a file whose name ends in {', '.join(_FORMS)}")
    groups: dict[str, list[_Pair]] = {}
    for pair in read(path):
        groups.setdefault(pair.identifier, []).append(pair)
    if not groups:
        raise DataError(f"{path} holds no question with an answer")
    return [
        Question(
            id=identifier,
            text=pairs[0].question,
            candidates=tuple(LabelledCandidate(Candidate(text=pair.answer), pair.label) for pair in pairs),
        )
        for identifier, pairs in groups.items()
    ]


def _files(path: Path, options: NoOptions) -> list[Path]:
    """The file, or the four files of a folder."""
    return [path / name for name in TOKENS] if path.is_dir() else source_files(path)


def _blocks(path: Path) -> Iterator[_Pair]:
    lines, seen = read_lines(path, blank=True), set[str]()
    identifier = question = ""
    for number, line in lines:
        tag = line.strip()
        if block := BLOCK.fullmatch(tag):
            if identifier or block[1] in seen:
                raise DataError(f"{path}:{number}: <QApairs> {identifier or block[1]!r} does not end, or comes twice")
            identifier = block[1]
            seen.add(identifier)
        elif identifier and not question and tag == "<question>":
            question = _words(path, number, lines, "question")
        elif question and tag in {"<positive>", "<negative>"}:
            yield _Pair(identifier, question, _words(path, number, lines, tag[1:-1]), int(tag == "<positive>"))
        elif identifier and tag == "</QApairs>":
            identifier = question = ""
        elif tag:
            raise DataError(f"{path}:{number}: {tag[:40]!r} is out of place")
    if identifier:
        raise DataError(f"{path}: <QApairs> {identifier!r} does not end")


def _words(path: Path, number: int, lines: Iterator[tuple[int, str]], tag: str) -> str:
    """The words in the line after an opening tag. The lines up to the closing tag are consumed too."""
    content: list[str] = []
    for _, line in lines:
        if line.strip() == f"</{tag}>":
            return " ".join(content[0].split()) if content else ""
        if TAG.fullmatch(line.strip()):
            break
        content.append(line)
    raise DataError(f"{path}:{number}: <{tag}> does not end")


def _folder(path: Path) -> Iterator[_Pair]:
    columns = [[line for _, line in read_lines(path / name, blank=True)] for name in TOKENS]
    if len({len(column) for column in columns}) > 1:
        raise DataError(f"{path}: {', '.join(TOKENS)} do not have equally many lines")
    for number, (identifier, question, answer, label) in enumerate(zip(*columns, strict=True), start=1):
        yield _Pair(identifier.strip(), question.strip(), answer.strip(), _label(label, path / TOKENS[-1], number))


def _jsonl(path: Path) -> Iterator[_Pair]:
    for number, row in read_json_lines(path):
        try:
            question, rows = str(row["question"]), row["candidates"]
            answers = [(str(each["sentence" if "sentence" in each else "answer"]), str(each["label"])) for each in rows]
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: expected a question, and candidates with answer and label") from error
        for answer, label in answers:
            yield _Pair(question, question, answer, _label(label, path, number))


def _label(text: str, path: Path, number: int) -> int:
    if (label := LABELS.get(text.strip())) is None:
        raise DataError(f"{path}:{number}: the label is 0 or 1, not {text!r}")
    return label


_FORMS: Mapping[str, Callable[[Path], Iterator[_Pair]]] = MappingProxyType({"xml": _blocks, "jsonl": _jsonl})

TRECQA = Format(name="trecqa", options=NoOptions, read=_read, files=_files)
