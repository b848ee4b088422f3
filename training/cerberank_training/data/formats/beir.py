"""Reads a BEIR folder: `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv`, each of which may be compressed (.gz).

Candidates are the judged documents of a query, or the best `k` documents of a run file or of BM25, as in a TREC
collection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from cerberank_models.json_lines import OptionalText
from cerberank_models.transformer import Frozen
from cerberank_training.data.formats.stored_lines import StoredLines
from cerberank_training.data.notes import Notes
from cerberank_training.data.options import parse_options
from cerberank_training.data.question import DataError, Question, parse_line, read_lines
from cerberank_training.data.source_files import named_files
from cerberank_training.data.trec.collection import BM25, LACKING, bm25_run, judged_question, with_text
from cerberank_training.data.trec.document_files import Document
from cerberank_training.data.trec.judgements import Run, read_qrels, read_run

Id = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]


class Options(Frozen):
    """The options after the question mark."""

    split: str = ""
    """The name of the file in `qrels`; not needed if there is only one file."""
    run: str = ""
    """A run file, relative to the folder, or `bm25`."""
    k: Annotated[int, Field(ge=1)] = 100
    """The number of the run's documents that are candidates."""

    @model_validator(mode="after")
    def _used(self) -> Self:
        if "k" in self.model_fields_set and not self.run:
            raise ValueError("k is of a run")
        return self


class _Line(Frozen):
    model_config = ConfigDict(extra="ignore")

    id: Annotated[Id, Field(alias="_id")]
    title: OptionalText = ""
    text: str


def read_beir(path: Path, notes: Notes) -> Iterator[Question]:
    """Yield the judged queries in the order of the qrels.

    Queries without a text, and those without candidates, are left out and counted.
    """
    folder, options = parse_options(Options, "beir", path)
    judged = read_qrels(_qrels_file(folder, options.split), notes, tabs=True)
    queries = dict(_pairs(_file(folder, "queries.jsonl")))
    qrels = with_text(judged, queries, notes)
    corpus = _file(folder, "corpus.jsonl")
    texts = StoredLines(corpus, lambda number, line: _text(corpus, number, line))
    run = _run(folder, options, {query: queries[query] for query in qrels})
    used = 0
    for query, grades in qrels.items():
        chosen = run.get(query, []) if options.run else [each for each in grades if each in texts]
        if absent := [each for each in chosen if each not in texts]:
            raise DataError(f"{folder}: the corpus lacks {absent[0]!r} of the run of query {query!r}")
        notes[LACKING] += sum(each not in texts for each in grades)
        notes["queries left out, without any candidate"] += not chosen
        used += bool(chosen)
        if chosen:
            yield judged_question(query, queries[query], chosen, grades, texts)
    if not used:
        raise DataError(f"{folder}: no judged query has a candidate")


def beir_files(path: Path) -> dict[str, Path]:
    """The files of corpus, queries, qrels and run. Raises DataError for a missing file."""
    folder, options = parse_options(Options, "beir", path)
    files = [_file(folder, "corpus.jsonl"), _file(folder, "queries.jsonl"), _qrels_file(folder, options.split)]
    return named_files(folder, files + ([folder / options.run] if options.run not in ("", BM25) else []))


def beir_documents(path: Path) -> Iterator[Document]:
    """Every document of the folder, one by one. Raises DataError."""
    return _documents(parse_options(Options, "beir", path)[0])


def _documents(folder: Path) -> Iterator[Document]:
    return (Document(identifier, text) for identifier, text in _pairs(_file(folder, "corpus.jsonl")))


def _run(folder: Path, options: Options, queries: Mapping[str, str]) -> Run:
    if not options.run:
        return {}
    if options.run == BM25:
        return bm25_run(queries, _documents(folder), options.k)
    return {query: documents[: options.k] for query, documents in read_run(folder / options.run).items()}


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
    found = sorted((folder / "qrels").glob("*.tsv*"))
    if len(found) != 1:
        names = ", ".join(path.name.partition(".")[0] for path in found) or "none"
        raise DataError(f"{folder}: split says which qrels are meant; there are: {names}")
    return found[0]


def _file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"{folder} is not a BEIR folder: it has no {name}")
