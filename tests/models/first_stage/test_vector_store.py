"""A store gives the vectors that were computed, to the encoder that computed them, whatever happened meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.first_stages import first_stage_config
from tests.models.first_stage.making import SHAPES, TEXTS, Counting, made
from tests.tiny import bert_tokenizer

from cerberank_models.first_stage.vector_store import (
    DIGESTS,
    MANIFEST,
    VECTORS,
    VectorStore,
    VectorStoreError,
    describe_files,
    read_manifest,
    text_digests,
)
from cerberank_models.text_encoding import TextEncoder


@pytest.mark.parametrize("shape", SHAPES, ids=["dot", "tr-colbert"])
def test_stored_vectors_are_the_computed_ones(shape: dict[str, Any], tmp_path: Path) -> None:
    """Every text is stored once and found in any order, beside texts that are not there; nothing else is left."""
    backend = Counting(shape)
    path = made(tmp_path, backend)
    assert backend.count == len(set(TEXTS))
    store = VectorStore.open(path, backend.config)
    assert len(store) == len(set(TEXTS))
    wanted_texts = ["not there", *TEXTS[::-1], "nor this"]
    vectors = store.find(wanted_texts)
    expected = backend.inner.encode(TextEncoder(bert_tokenizer(), backend.config).candidates(wanted_texts))
    assert vectors[0] is None
    assert vectors[-1] is None
    for got, wanted in zip(vectors[1:-1], expected[1:-1], strict=True):
        assert got.dtype == np.float16
        assert got.astype(np.float32) == pytest.approx(wanted.astype(np.float32), abs=1e-2)
    assert store.find([]) == []
    assert not (path / "parts").exists()


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    """A text is found with its lone surrogates, and as the service asks, with U+FFFD for each; it is stored once."""
    raw = ["x \ud800 y", "x \ufffd y", "x \udfff y", "z"]
    path = made(tmp_path, Counting(SHAPES[0]), raw)
    store = VectorStore.open(path, first_stage_config(**SHAPES[0]))
    assert len(store) == 2
    vectors = store.find(raw)
    assert all(np.array_equal(vectors[0], each) for each in vectors[1:3] if each is not None)
    assert [each is None for each in vectors] == [False] * 4


def test_a_store_of_another_encoder_is_refused(tmp_path: Path) -> None:
    """The message names both encoders."""
    path = made(tmp_path, Counting(SHAPES[0]))
    other = first_stage_config(**SHAPES[0]).model_copy(update={"encoder": "1" * 64})
    with pytest.raises(VectorStoreError, match=f"{'0' * 64}.*{'1' * 64}"):
        VectorStore.open(path, other)


def rewritten(path: Path, **arrays: NDArray[Any]) -> Path:
    """The store with other arrays, which its manifest describes."""
    for name, array in arrays.items():
        np.save(path / f"{name}.npy", array)
    manifest = read_manifest(path).model_copy(update={"files": describe_files(path)})
    (path / MANIFEST).write_text(manifest.model_dump_json())
    return path


def changed_manifest(path: Path, **fields: object) -> None:
    content = json.loads((path / MANIFEST).read_bytes())
    (path / MANIFEST).write_text(json.dumps({**content, **fields}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / DIGESTS).write_bytes(b"x" * 100),
        lambda path: (path / DIGESTS).unlink(),
        lambda path: np.save(path / DIGESTS, np.zeros((3, 2), np.uint64)),
        lambda path: rewritten(path, digests=np.zeros((3, 2), np.uint64)),
        lambda path: rewritten(path, digests=np.load(path / DIGESTS)[::-1]),
        lambda path: rewritten(path, digests=np.zeros_like(np.load(path / DIGESTS))),
        lambda path: rewritten(path, vectors=np.load(path / VECTORS)[1:]),
        lambda path: rewritten(path, vectors=np.load(path / VECTORS).astype(np.float32)),
        lambda path: rewritten(path, offsets=np.zeros(3, np.int64)),
        lambda path: np.save(path / DIGESTS, np.zeros((3, 2), object), allow_pickle=True),
        lambda path: (path / VECTORS).write_bytes(b""),
        lambda path: ((path / VECTORS).write_bytes(b""), rewritten(path)),
        lambda path: (path / VECTORS).write_bytes((path / VECTORS).read_bytes()[:-2]),
        lambda path: (path / MANIFEST).write_text("[]"),
        lambda path: (path / MANIFEST).write_bytes(b"\xff\xfe"),
        lambda path: (path / MANIFEST).write_text("[" * 100_000),
        lambda path: changed_manifest(path, format=2),
        lambda path: changed_manifest(path, files={}),
    ],
    ids=[
        *("noise", "missing", "replaced", "fewer", "unsorted", "twice", "fewer vectors", "fp32", "foreign", "pickled"),
        *("emptied", "empty", "cut", "manifest", "no text", "deep", "format", "no files"),
    ],
)
def test_a_damaged_store_is_refused(damage: Callable[[Path], object], tmp_path: Path) -> None:
    """A missing, cut, foreign or pickled file is an error at opening."""
    path = made(tmp_path, Counting(SHAPES[0]))
    damage(path)
    with pytest.raises(VectorStoreError):
        VectorStore.open(path, first_stage_config(**SHAPES[0]))


@pytest.mark.parametrize(
    "offsets",
    [lambda old: old[:-1], lambda old: np.r_[0, old[2], old[1], old[3:]], lambda old: np.r_[1, old[1:]]],
    ids=["fewer", "unsorted", "begins late"],
)
def test_damaged_offsets_are_refused(offsets: Callable[[NDArray[Any]], NDArray[Any]], tmp_path: Path) -> None:
    """ColBERT's vectors must begin at 0, follow one another, and be as many as the texts."""
    path = made(tmp_path, Counting(SHAPES[1]))
    rewritten(path, offsets=offsets(np.load(path / "offsets.npy")))
    with pytest.raises(VectorStoreError, match=r"not sorted|does not have the 88 texts"):
        VectorStore.open(path, first_stage_config(**SHAPES[1]))


def test_digests_with_an_equal_half_are_told_apart(tmp_path: Path) -> None:
    """The low half decides where several texts have the same high half, also at the end of the store."""
    texts = [str(number) for number in range(9)]
    digests = text_digests(texts)
    digests[:, 0] = digests[0, 0]
    order = np.argsort(digests[:, 1])
    path = made(tmp_path, Counting(SHAPES[0]), texts)
    width = first_stage_config(**SHAPES[0]).fixed_width
    rewritten(path, digests=digests[order], vectors=np.repeat(order.astype(np.float16)[:, None], width, axis=1))
    store = VectorStore.open(path, first_stage_config(**SHAPES[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "cerberank_models.first_stage.vector_store.text_digests",
            lambda wanted_texts: digests[[int(t) for t in wanted_texts]],
        )
        assert [None if v is None else int(v[0]) for v in store.find(texts)] == list(range(9))
