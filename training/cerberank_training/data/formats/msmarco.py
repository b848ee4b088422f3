r"""Reads MS MARCO's triples: lines `query\tpositive\tnegative` of texts, or of ids with a collection and queries.

    msmarco:triples.train.small.tsv
    msmarco:qidpidtriples.train.full.2.tsv?collection=collection.tsv&queries=queries.train.tsv

The lines of a query are joined: it is one question, with all its positives and negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data.format import Format
from cerberank_training.data.formats.joined import joined
from cerberank_training.data.formats.stored_lines import StoredLines
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines
from cerberank_training.data.source_files import source_files
from cerberank_training.data.trec.queries import read_queries


class MsMarcoOptions(Frozen):
    """The options after the question mark. Paths are relative to the folder of the triples."""

    collection: str = ""
    """A file with the id and text of a passage on each line, for triples of ids."""
    queries: str = ""
    """A file with the id and text of a query on each line, for triples of ids."""
    first: Annotated[int, Field(ge=1)] | None = None
    """The number of lines to read from the start of the file; None reads all."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.collection) != bool(self.queries):
            raise ValueError("collection and queries go together")
        return self


def _read(file: Path, options: MsMarcoOptions, notes: Notes) -> Iterator[Question]:
    """Yield a question for each query. Raises DataError for a bad line, an unknown id or an empty file."""
    return joined(_triples(file, options), lambda question: question.text, notes)


def _triples(file: Path, options: MsMarcoOptions) -> Iterator[Question]:
    """Yield a question with two candidates for each line."""
    look_up = _from_files(file.parent, options) if options.queries else None
    number = 0
    for number, line in islice(read_lines(file), options.first):
        columns = line.split("\t")
        if len(columns) != 3 or not all(column.strip() for column in columns):
            raise DataError(f"{file}:{number}: expected a query, a positive and a negative, separated by tabs")
        try:
            query, positive, negative = look_up(columns) if look_up else columns
        except KeyError as error:
            raise DataError(f"{file}:{number}: the id {error} is not in the collection or the queries") from error
        candidates = (LabelledCandidate(Candidate(text=positive), 1), LabelledCandidate(Candidate(text=negative), 0))
        yield Question(id=str(number), text=query, candidates=candidates)
    if not number:
        raise DataError(f"{file} holds no triple")


def _files(file: Path, options: MsMarcoOptions) -> list[Path]:
    """The files of triples, collection and queries."""
    return [*source_files(file), *(file.parent / name for name in (options.collection, options.queries) if name)]


def _from_files(folder: Path, options: MsMarcoOptions) -> Callable[[list[str]], list[str]]:
    """A function that turns three ids into texts."""
    queries = read_queries(folder / options.queries)
    path = folder / options.collection
    passages: Mapping[str, str] = StoredLines(path, lambda number, line: _passage(path, number, line))
    return lambda ids: [queries[ids[0]], passages[ids[1]], passages[ids[2]]]


def _passage(path: Path, number: int, line: str) -> tuple[str, str]:
    identifier, tab, text = line.partition("\t")
    if not tab or not identifier:
        raise DataError(f"{path}:{number}: expected a passage's id and its text, separated by a tab")
    return identifier, text


MS_MARCO = Format(name="msmarco", options=MsMarcoOptions, read=_read, files=_files, streamed=True)
