"""Small documents whose sentences are long enough to be kept and say where they stand."""

from __future__ import annotations

import json
from pathlib import Path

from cerberank_papers.pretraining.document_table import DocumentTable
from cerberank_papers.pretraining.documents import Document
from cerberank_papers.pretraining.examples import ExampleGroups, Objective

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def sentence(document: int, paragraph: int, number: int) -> str:
    """A sentence of about 30 characters that no other place has."""
    return f"{LETTERS[document]} is a tower {LETTERS[paragraph]} in city {LETTERS[number]} by a river ."


def paragraphs(document: int, sizes: list[int]) -> list[list[str]]:
    return [[sentence(document, place, number) for number in range(size)] for place, size in enumerate(sizes)]


def documents(shape: list[list[int]]) -> list[Document]:
    """A document for each list of its paragraphs' numbers of sentences."""
    return [Document(paragraphs=tuple(map(tuple, paragraphs(number, sizes)))) for number, sizes in enumerate(shape)]


def groups_of(
    found: list[Document], objective: Objective, *, seed: int, whole_negatives: bool = False
) -> ExampleGroups:
    """The groups of documents in memory."""
    return ExampleGroups(DocumentTable.of(found), objective, seed=seed, whole_negatives=whole_negatives)


def articles(folder: Path, *, count: int = 4, sizes: tuple[int, ...] = (3, 5, 4, 4)) -> str:
    """Articles in a file of `folder`, named as the verb wants it."""
    rows = [{"title": str(number), "paragraphs": paragraphs(number, list(sizes))} for number in range(count)]
    folder.mkdir(exist_ok=True)
    (folder / "articles.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"articles:{folder / 'articles.jsonl'}"
