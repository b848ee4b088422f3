"""Reads a BEIR folder: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`, each of which may be compressed (.gz).

Candidates are the judged documents of a query, or the best `k` documents of a run file or of BM25, as in a TREC
collection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field

from cerberank_models.json_lines import OptionalText
from cerberank_models.transformer import Frozen
from cerberank_training.data.format import Format
from cerberank_training.data.formats.stored_lines import StoredLines
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, Question, parse_line, read_lines
from cerberank_training.data.trec.judged import LACKING, RunOptions, judged_question, with_text
from cerberank_training.data.trec.judgements import read_qrels

Id = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


WITHOUT_CANDIDATES = "queries left out, without any candidate"
"""The name of their number in the notes."""


class BeirOptions(RunOptions):
    """The options after the question mark."""

    split: str = ""
    """The name of the file in `qrels`; not needed if there is only one file."""


class _Line(Frozen):
    model_config = ConfigDict(extra="ignore")

    id: Annotated[Id, Field(alias="_id")]
    title: OptionalText = ""
    text: str


def _read(folder: Path, options: BeirOptions, notes: Notes) -> Iterator[Question]:
    """Yield the judged queries in the order of the qrels.

    Queries without a text, and those without candidates, are left out and counted.
    """
    judgements = read_qrels(_qrels_file(folder, options.split), notes, tabs=True)
    queries = dict(_pairs(_file(folder, "queries.jsonl")))
    qrels = with_text(judgements, queries, notes)
    corpus = _file(folder, "corpus.jsonl")
    texts = StoredLines(corpus, lambda number, line: _text(corpus, number, line))
    run = options.ranked(folder, {query: queries[query] for query in qrels}, _documents(folder, options))
    for query, grades in qrels.items():
        chosen = [each for each in grades if each in texts] if run is None else run.get(query, [])
        if absent := [each for each in chosen if each not in texts]:
            raise DataError(f"{folder}: the corpus lacks {absent[0]!r} of the run of query {query!r}")
        notes[LACKING] += sum(each not in texts for each in grades)
        notes[WITHOUT_CANDIDATES] += int(not chosen)
        if chosen:
            yield judged_question(query, queries[query], chosen, grades, texts)
    if notes[WITHOUT_CANDIDATES] == len(qrels):
        raise DataError(f"{folder}: no judged query has a candidate")


def _files(folder: Path, options: BeirOptions) -> list[Path]:
    files = [_file(folder, "corpus.jsonl"), _file(folder, "queries.jsonl"), _qrels_file(folder, options.split)]
    return files + options.run_files(folder)


def _documents(folder: Path, options: BeirOptions) -> Iterator[tuple[str, str]]:
    return _pairs(_file(folder, "corpus.jsonl"))


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for number, line in read_lines(path):
        identifier, text = _text(path, number, line)
        if identifier in seen:
            raise DataError(f"{path}:{number}: the id {identifier!r} comes twice")
        seen.add(identifier)
        yield identifier, text


def _text(path: Path, number: int, line: str) -> tuple[str, str]:
    row = parse_line(_Line, path, number, line)
    return row.id, f"{row.title} {row.text}".strip()


def _qrels_file(folder: Path, split: str) -> Path:
    if split:
        return _file(folder / "qrels", f"{split}.tsv")
    files = sorted((folder / "qrels").glob("*.tsv*"))
    if len(files) != 1:
        names = ", ".join(path.name.partition(".")[0] for path in files) or "none"
        raise DataError(f"{folder}: split says which qrels are meant; there are: {names}")
    return files[0]


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder} is not a BEIR folder: it has no {name}")


BEIR = Format(name="beir", options=BeirOptions, read=_read, files=_files, documents=_documents, streamed=True)
