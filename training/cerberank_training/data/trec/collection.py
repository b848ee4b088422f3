"""Reads a TREC collection as questions with candidates: `trec:FOLDER?key=value&...`.

FOLDER has one file that begins with `queries`, one that begins with `qrels`, and a file or folder that begins with
`documents`; `Options` can name others. Candidates are the judged documents, or the best `k` documents of a run.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data.notes import Notes
from cerberank_training.data.options import parse_options
from cerberank_training.data.question import DataError, LabelledCandidate, Question
from cerberank_training.data.source_files import files_of, named_files
from cerberank_training.data.trec.document_files import Document, read_documents
from cerberank_training.data.trec.folds import read_folds, splits
from cerberank_training.data.trec.judgements import Qrels, Run, read_qrels, read_run
from cerberank_training.data.trec.queries import read_queries

BM25 = "bm25"
"""The name of the run that is computed while reading."""
LACKING = "judged documents that the corpus lacks"
"""The name of their number in the notes."""


class Options(Frozen):
    """The options after the question mark. Paths are relative to the folder."""

    queries: str = ""
    documents: str = ""
    qrels: str = ""
    run: str = ""
    """A run file, or `bm25`."""
    k: Annotated[int, Field(ge=1)] = 100
    """The number of the run's documents that are candidates."""
    folds: str = ""
    """A file of folds, from which `fold` and `part` choose."""
    fold: Annotated[int, Field(ge=1)] = 1
    """The number of the split, counted from 1; split i tests on fold i."""
    part: Literal["all", "train", "dev", "test"] = "all"
    encoding: str = "utf-8"
    """The encoding of queries and documents, such as latin-1 for Robust04."""

    @field_validator("encoding")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            return codecs.lookup(value).name
        except LookupError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _used(self) -> Self:
        """Raise ValueError for an option that would have no effect."""
        given = self.model_fields_set
        if bool(self.folds) != (self.part != "all") or ("fold" in given and not self.folds):
            raise ValueError("folds, perhaps fold, and part train, dev or test go together")
        if "k" in given and not self.run:
            raise ValueError("k is of a run")
        return self


@dataclass(frozen=True, slots=True)
class Collection:
    """The files of a collection, with the options that choose queries and documents."""

    folder: Path
    options: Options

    @classmethod
    def parse(cls, path: Path) -> Collection:
        """The collection of `FOLDER?key=value&...`. Raises DataError for an unknown or wrong option."""
        return cls(*parse_options(Options, "trec", path))

    def documents(self) -> Iterator[Document]:
        """Every document, one by one. Raises DataError."""
        return read_documents(self._file("documents", self.options.documents), encoding=self.options.encoding)

    def files(self) -> dict[str, Path]:
        """All files that `questions` reads. Raises DataError for a missing file."""
        entries = [self._file(name, getattr(self.options, name)) for name in ("queries", "documents", "qrels")]
        given = [self.folder / name for name in (self.options.run, self.options.folds) if name not in ("", BM25)]
        return named_files(self.folder, chain.from_iterable(map(files_of, [*entries, *given])))

    def questions(self, notes: Notes) -> list[Question]:
        """The judged queries of the chosen part, in the order of their file. Raises DataError.

        Judged queries without a text, and judged documents that the collection lacks, are counted.
        """
        path = self._file("queries", self.options.queries)
        queries = read_queries(path, encoding=self.options.encoding)
        qrels = with_text(read_qrels(self._file("qrels", self.options.qrels), notes), queries, notes)
        chosen = self._part(queries, qrels)
        run = self._run(chosen, qrels)
        wanted = set(chain.from_iterable(run.values()))
        read = wanted | {each for query in chosen for each, grade in qrels[query].items() if grade}
        texts = {document.id: document.text for document in self.documents() if document.id in read}
        notes[LACKING] += sum(each in read and each not in texts for query in chosen for each in qrels[query])
        if not self.options.run:
            run = {query: [each for each in documents if each in texts] for query, documents in run.items()}
        elif missing := wanted - texts.keys():
            raise DataError(f"{self.folder}: {len(missing)} documents of the run are missing, such as {min(missing)!r}")
        if empty := [query for query in chosen if not run.get(query)]:
            raise DataError(f"{self.folder}: {len(empty)} judged queries have no document, such as {empty[0]!r}")
        return [judged_question(query, text, run[query], qrels[query], texts) for query, text in chosen.items()]

    def _part(self, queries: dict[str, str], qrels: Qrels) -> dict[str, str]:
        """The judged queries of the chosen part of the split."""
        judged = {query: text for query, text in queries.items() if query in qrels}
        if self.options.part == "all":
            return judged
        path = self.folder / self.options.folds
        folds = read_folds(path)
        placed = set(chain.from_iterable(folds))
        if unknown := sorted(placed - queries.keys()):
            raise DataError(f"{path}: {len(unknown)} queries are not in the collection, such as {unknown[0]!r}")
        if left_out := [query for query in judged if any(qrels[query].values()) and query not in placed]:
            raise DataError(f"{path}: {len(left_out)} queries are in no fold, such as {left_out[0]!r}")
        if self.options.fold > len(folds):
            raise DataError(f"{path}: there are {len(folds)} folds, not {self.options.fold}")
        part: tuple[str, ...] = getattr(splits(folds)[self.options.fold - 1], self.options.part)
        wanted = set(part)
        return {query: text for query, text in judged.items() if query in wanted}

    def _run(self, queries: dict[str, str], qrels: Qrels) -> Run:
        """The candidates of each query."""
        if not self.options.run:
            return {query: list(qrels[query]) for query in queries}
        if self.options.run == BM25:
            return bm25_run(queries, self.documents(), self.options.k)
        run = read_run(self.folder / self.options.run)
        return {query: run[query][: self.options.k] for query in queries if query in run}

    def _file(self, name: str, given: str) -> Path:
        """The given file, or the only entry of the folder whose name begins with `name`."""
        found = [self.folder / given] if given else sorted(self.folder.glob(f"{name}*"))
        if len(found) != 1 or not found[0].exists():
            raise DataError(f"{self.folder} needs one entry {given or f'{name}*'}; the option {name} names it")
        return found[0]


def read_trec(path: Path, notes: Notes) -> list[Question]:
    """The questions of `FOLDER?key=value&...`."""
    return Collection.parse(path).questions(notes)


def trec_files(path: Path) -> dict[str, Path]:
    """The files of `FOLDER?key=value&...`. Raises DataError."""
    return Collection.parse(path).files()


def with_text(qrels: Qrels, queries: Mapping[str, str], notes: Notes) -> Qrels:
    """The judgements of the queries that have a text; the other queries are counted."""
    known = {query: grades for query, grades in qrels.items() if query in queries}
    notes["judged queries without a text (left out)"] += len(qrels) - len(known)
    return known


def bm25_run(queries: Mapping[str, str], documents: Iterable[Document], k: int) -> Run:
    """BM25's best `k` documents for each query, best first. Memory holds these and the index."""
    from cerberank_training.data.bm25 import Bm25Index  # noqa: PLC0415 - bm25s, only where a run is computed

    ids: list[str] = []

    def texts() -> Iterator[str]:
        for document in documents:
            ids.append(document.id)
            yield document.text

    index = Bm25Index(texts())
    return {query: [ids[place] for place in index.top(text, k)] for query, text in queries.items()}


def judged_question(
    query: str, text: str, run: Sequence[str], grades: Mapping[str, int], texts: Mapping[str, str]
) -> Question:
    """A query with the documents of `run` as candidates. Other relevant documents count as missed.

    Unjudged documents with the text of a relevant document, in the run or not, are marked as copies.
    """
    found = set(run)
    relevant = {folded(texts[each]) for each, grade in grades.items() if grade and each in texts} - {""}
    return Question(
        id=query,
        text=text,
        candidates=tuple(
            LabelledCandidate(
                Candidate(text=texts[each]),
                grades.get(each, 0),
                id=each,
                copy=each not in grades and folded(texts[each]) in relevant,
            )
            for each in run
        ),
        missed=tuple(grade for each, grade in grades.items() if grade and each not in found),
    )
