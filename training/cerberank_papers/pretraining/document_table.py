"""Documents as an Arrow table in memory or in a mapped file, so that a corpus may be larger than the memory.

The row of a paragraph states the contexts with which it can give a positive, so that opening a table reads no text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cerberank_models.tokens import replace_surrogates
from cerberank_papers.pretraining.documents import Document, Paragraph, read_documents
from cerberank_papers.pretraining.spans import CONTEXTS, Context, contexts_of
from cerberank_training.data import LARGE
from cerberank_training.data.arrow_files import grouped, stored_batches
from cerberank_training.data.source_files import source_files

SCHEMA = pa.schema([("paragraphs", pa.list_(pa.list_(pa.string()))), ("contexts", pa.list_(pa.uint8()))])
LAYOUT = 1
"""The version of a table's content; a table with another version is written again."""


class DocumentTable:
    """The paragraphs of documents, which are created on access."""

    def __init__(self, batches: Sequence[Any]) -> None:
        """Read record batches of SCHEMA."""
        self._batches = batches
        self._starts = np.asarray([0, *accumulate(len(batch) for batch in batches)], dtype=np.int64)

    @classmethod
    def of(cls, documents: Iterable[Document]) -> DocumentTable:
        """The documents as a table in memory."""
        return cls(list(_batches(documents)))

    def __len__(self) -> int:
        """The number of documents."""
        return int(self._starts[-1])

    def paragraph(self, document: int, place: int) -> Paragraph:
        """The sentences of one paragraph; other paragraphs are not read."""
        number = int(np.searchsorted(self._starts, document, side="right")) - 1
        paragraphs = self._batches[number].column("paragraphs")
        row = paragraphs.offsets[document - int(self._starts[number])].as_py() + place
        sentences = paragraphs.values
        start, stop = sentences.offsets[row].as_py(), sentences.offsets[row + 1].as_py()
        return tuple(sentences.values[start:stop].to_pylist())

    def places(self, context: Context) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The document and position of every paragraph that can give a positive with this context, in order."""
        bit, parts = 1 << CONTEXTS.index(context), [np.zeros((2, 0), dtype=np.int32)]
        for start, batch in zip(self._starts.tolist(), self._batches, strict=False):
            lists = batch.column("contexts")
            offsets = lists.offsets.to_numpy()
            values = lists.values.to_numpy()[offsets[0] : offsets[-1]]
            matches = np.flatnonzero(values & bit)
            rows = np.searchsorted(offsets - offsets[0], matches, side="right") - 1
            parts.append(np.stack([start + rows, matches - (offsets - offsets[0])[rows]]).astype(np.int32))
        numbers, places = np.concatenate(parts, axis=1)
        return numbers, places


def open_documents(spec: str) -> DocumentTable:
    """The documents of `FORMAT:PATH`. From LARGE bytes on, they are in a table on disk, PATH.documents.arrow.

    The first call writes this table. Raises DataError as `read_documents` does.
    """
    documents = read_documents(spec)
    source = Path(os.path.abspath(spec.partition(":")[2]))  # the folder "." has no name
    if not source.exists():
        return DocumentTable.of(documents)
    files = source_files(source)
    batches = stored_batches(source, _batches(documents), kind="documents", layout=LAYOUT, files=files, most=LARGE)
    return DocumentTable(batches)


def _batches(documents: Iterable[Document]) -> Iterator[Any]:
    """Record batches of the documents."""
    return map(_batch, grouped(documents, _characters))


def _characters(document: Document) -> int:
    return sum(len(text) for paragraph in document.paragraphs for text in paragraph)


def _batch(documents: Sequence[Document]) -> Any:
    paragraphs = [[list(map(replace_surrogates, each)) for each in document.paragraphs] for document in documents]
    columns = [paragraphs, [contexts_of(each) for each in paragraphs]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
