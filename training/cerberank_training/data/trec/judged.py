"""Judged queries as questions: the candidates are the judged documents, or the best documents of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_models.transformer import Frozen
from cerberank_training.data.notes import Notes
from cerberank_training.data.question import DataError, LabelledCandidate, Question
from cerberank_training.data.trec.judgements import Qrels, Run, read_run

BM25 = "bm25"
"""The name of the run that is computed while reading."""
WITHOUT_CANDIDATES = "queries left out, without any candidate"
"""The name of their number in the notes."""


class RunOptions(Frozen):
    """The options of a collection whose candidates may come from a run."""

    run: str = ""
    """A run file, relative to the folder, or `bm25`."""
    k: Annotated[int, Field(ge=1)] = 100
    """The number of the run's documents that are candidates."""

    @model_validator(mode="after")
    def _run_of_k(self) -> Self:
        if "k" in self.model_fields_set and not self.run:
            raise ValueError("k is of a run")
        return self

    def run_files(self, folder: Path) -> list[Path]:
        """The run file; none for BM25 and without a run."""
        return [] if self.run in ("", BM25) else [folder / self.run]

    def ranked(self, folder: Path, queries: Mapping[str, str], documents: Iterable[tuple[str, str]]) -> Run | None:
        """The run's best `k` documents for each query that it has, best first; None without a run."""
        if not self.run:
            return None
        if self.run == BM25:
            return bm25_run(queries, documents, self.k)
        run = read_run(folder / self.run)
        return {query: run[query][: self.k] for query in queries if query in run}


def judged_questions(
    folder: Path,
    options: RunOptions,
    *,
    queries: Mapping[str, str],
    qrels: Qrels,
    documents: Callable[[], Iterator[tuple[str, str]]],
    notes: Notes,
) -> Iterator[Question]:
    """The judged queries of a collection, in their order, with the judged documents or those of the run as candidates.

    `documents` reads the collection. Judged queries without a text or without candidates are left out, and counted as
    judged documents are that the collection lacks. Raises DataError for a run with documents that it lacks, and if no
    query is left.
    """
    judged = {query: text for query, text in queries.items() if query in qrels}
    notes["judged queries without a text (left out)"] += len(qrels) - len(judged)
    run = options.ranked(folder, judged, documents())
    candidates = {query: list(qrels[query]) for query in judged} if run is None else run
    # Memory holds the texts of candidates and of relevant documents, whose copies among the candidates are marked.
    wanted = set(chain.from_iterable(candidates.values()))
    read = wanted | {each for query in judged for each, grade in qrels[query].items() if grade}
    texts = {identifier: text for identifier, text in documents() if identifier in read}
    notes["judged documents that the corpus lacks"] += sum(
        each in read and each not in texts for query in judged for each in qrels[query]
    )
    if run is not None and (missing := wanted - texts.keys()):
        raise DataError(f"{folder}: {len(missing)} documents of the run are missing, such as {min(missing)!r}")
    for query, text in judged.items():
        chosen = [each for each in candidates.get(query, ()) if each in texts]
        notes[WITHOUT_CANDIDATES] += int(not chosen)
        if chosen:
            yield _question(query, text, chosen, qrels[query], texts)
    if notes[WITHOUT_CANDIDATES] == len(judged):
        raise DataError(f"{folder}: no judged query has a candidate")


def bm25_run(queries: Mapping[str, str], documents: Iterable[tuple[str, str]], k: int) -> Run:
    """BM25's best `k` documents for each query, best first. Memory holds the ids and the index."""
    from cerberank_training.data.bm25 import Bm25Index  # noqa: PLC0415 - bm25s, only where a run is computed

    ids: list[str] = []

    def texts() -> Iterator[str]:
        for identifier, text in documents:
            ids.append(identifier)
            yield text

    index = Bm25Index(texts())
    return {query: [ids[place] for place in index.top(text, k)] for query, text in queries.items()}


def _question(
    query: str, text: str, candidates: Sequence[str], grades: Mapping[str, int], texts: Mapping[str, str]
) -> Question:
    """A query with the documents `candidates`. Other relevant documents count as missed.

    Unjudged candidates with the text of a relevant document, which need not be a candidate, are marked as copies.
    """
    present = set(candidates)
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
            for each in candidates
        ),
        missed=tuple(grade for each, grade in grades.items() if grade and each not in present),
    )
