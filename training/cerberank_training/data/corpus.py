"""The texts that are searched for negatives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from cerberank_training.data import Question, read_questions
from cerberank_training.data.formats.beir import beir_documents
from cerberank_training.data.trec.collection import Collection
from cerberank_training.data.trec.document_files import Document, read_documents


def corpus_texts(spec: str, questions: Iterable[Question] | None = None) -> list[str]:
    """The distinct texts of `FORMAT:PATH`, in order: documents of `trec`, `beir` and `documents:PATH`, else candidates.

    `documents:PATH` is a file or folder of documents in the formats of TREC collections. `questions` are the questions
    of `spec`, if they have been read already. Raises DataError.
    """
    name, _, path = spec.partition(":")
    if name in ("trec", "beir", "documents"):
        return list(dict.fromkeys(document.text for document in _documents(name, Path(path))))
    asked = read_questions(spec) if questions is None else questions
    return list(dict.fromkeys(row.candidate.text for question in asked for row in question.candidates))


def _documents(name: str, path: Path) -> Iterator[Document]:
    if name == "trec":
        return Collection.parse(path).documents()
    return beir_documents(path) if name == "beir" else read_documents(path)
