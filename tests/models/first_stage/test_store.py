"""A store gives the vectors that were computed, to the encoder that computed them, whatever happened meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.first_stages import first_stage_config, network_of, ranker_of
from tests.tiny import WORDS, bert_tokenizer

from cerberank_models.backends.contract import Vector
from cerberank_models.encoding import EncodedPairs
from cerberank_models.first_stage.embed import embed
from cerberank_models.first_stage.encoding import FirstStageEncoder
from cerberank_models.first_stage.store import (
    DIGESTS,
    MANIFEST,
    VECTORS,
    StoreError,
    VectorStore,
    describe_files,
    read_manifest,
    text_digests,
)
from cerberank_models.first_stage.torch_encoder import TorchEncoder

TEXTS = [*WORDS, "", "\ud800", *(f"{word} tower" for word in WORDS), *WORDS[:7]]
SHAPES: list[dict[str, Any]] = [{"token_ranker": "dot"}, {"first_ranker": True, "token_ranker": "colbert"}]


class Counting:
    """An encoder that counts what it encodes, and dies after some texts."""

    def __init__(self, shape: dict[str, Any], *, dies_after: int = 10**9) -> None:
        self.inner = TorchEncoder(network_of(ranker_of(shape), first_stage_config(**shape)))
        self.config, self.precision, self.left, self.count = self.inner.config, "fp32", dies_after, 0

    def encode(self, texts: EncodedPairs) -> list[Vector]:
        self.left -= len(texts)
        if self.left < 0:
            raise KeyboardInterrupt
        self.count += len(texts)
        return list(self.inner.encode(texts))


def made(folder: Path, backend: Counting, texts: list[str] = TEXTS, graph: str = "a") -> Path:
    encoder = FirstStageEncoder(bert_tokenizer(), backend.config)
    names = {"inputs": sha256(json.dumps(texts).encode()).hexdigest(), "computed_by": graph * 64}
    embed(lambda: iter(texts), folder / "store", **names, backend=backend, encoder=encoder, shard=16)
    return folder / "store"


@pytest.mark.parametrize("shape", SHAPES, ids=["dot", "tr-colbert"])
def test_stored_vectors_are_the_computed_ones(shape: dict[str, Any], tmp_path: Path) -> None:
    """Every text is stored once and found in any order, beside texts that are not there; nothing else is left."""
    backend = Counting(shape)
    path = made(tmp_path, backend)
    assert backend.count == len(set(TEXTS))
    store = VectorStore.open(path, backend.config)
    assert len(store) == len(set(TEXTS))
    asked = ["not there", *TEXTS[::-1], "nor this"]
    found = store.find(asked)
    expected = backend.inner.encode(FirstStageEncoder(bert_tokenizer(), backend.config).candidates(asked))
    assert found[0] is None
    assert found[-1] is None
    for got, wanted in zip(found[1:-1], expected[1:-1], strict=True):
        assert got is not None
        assert got.dtype == np.float16
        assert got.astype(np.float32) == pytest.approx(wanted.astype(np.float32), abs=1e-2)
    assert store.find([]) == []
    assert not (path / "parts").exists()


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """Shards that were written are not computed again, and the store is byte for byte that of a whole run."""
    shape = SHAPES[0]
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, Counting(shape, dies_after=40))
    with pytest.raises(StoreError, match="not finished"):
        VectorStore.open(tmp_path / "store", first_stage_config(**shape))
    rest = Counting(shape)
    made(tmp_path, rest)
    assert rest.count == len(set(TEXTS)) - 32
    again = Counting(shape)
    made(tmp_path, again)
    assert again.count == 0
    (tmp_path / "whole").mkdir()
    whole = made(tmp_path / "whole", Counting(shape))
    for name in ("digests.npy", "vectors.npy", MANIFEST):
        assert (whole / name).read_bytes() == (tmp_path / "store" / name).read_bytes()


@pytest.mark.parametrize("finished", [True, False])
def test_other_inputs_and_encoders_are_refused(finished: bool, tmp_path: Path) -> None:
    """The field that differs is named, for a finished store and for a begun one."""
    shape = SHAPES[0]
    if finished:
        made(tmp_path, Counting(shape))
    else:
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path, Counting(shape, dies_after=40))
    with pytest.raises(StoreError, match=r"another inputs: .*was begun with, or remove the folder"):
        made(tmp_path, Counting(shape), TEXTS[1:])
    with pytest.raises(StoreError, match=r"another computed_by: aaaa.* now it is bbbb"):
        made(tmp_path, Counting(shape), graph="b")
    other = Counting(shape)
    other.config = other.config.model_copy(update={"encoder": "1" * 64})
    with pytest.raises(StoreError, match="another encoder: 0000"):
        made(tmp_path, other)
    rough = Counting(shape)
    rough.precision = "bf16"
    with pytest.raises(StoreError, match="another precision: fp32, now it is bf16"):
        made(tmp_path, rough)


def test_what_a_kill_between_two_steps_leaves_is_no_obstacle(tmp_path: Path) -> None:
    """Half-written files, also of the plan, and the parts of a finished store are gone after the same call again."""
    store = tmp_path / "store"
    store.mkdir()
    (store / ".plan.json.x.partial").write_text("{")
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, Counting(SHAPES[0], dies_after=0))
    (store / ".digests.npy.x.partial").touch()
    made(tmp_path, Counting(SHAPES[0]))
    files = {each.name for each in store.iterdir()}
    assert files == {"plan.json", MANIFEST, DIGESTS, VECTORS}
    (store / "parts").mkdir()
    (store / "parts" / "000000.npz").touch()
    made(tmp_path, Counting(SHAPES[0]))
    assert {each.name for each in store.iterdir()} == files


def test_a_kill_before_the_first_shard_leaves_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in a new folder before its plan, whatever is written next."""
    seen: list[set[str]] = []

    def killed(path: Path, *_: object) -> None:
        seen.append({each.name for each in (tmp_path / "store").iterdir()})
        raise KeyboardInterrupt

    monkeypatch.setattr("cerberank_models.first_stage.embed._write_part", killed)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, Counting(SHAPES[0]))
    assert seen == [{"plan.json"}]


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: (path / VECTORS).unlink(),
        lambda path: (path / DIGESTS).write_bytes(b""),
        lambda path: np.save(path / VECTORS, np.zeros_like(np.load(path / VECTORS))),
        lambda path: np.save(path / "offsets.npy", np.zeros(3, np.int64)),
        lambda path: (path / MANIFEST).write_text("{}"),
    ],
    ids=["missing", "empty", "zeros", "foreign", "manifest"],
)
def test_a_finished_store_is_compared_with_its_manifest(damage: Callable[[Path], object], tmp_path: Path) -> None:
    """The same call again says that a file is missing or has other content."""
    path = made(tmp_path, Counting(SHAPES[0]))
    damage(path)
    with pytest.raises(StoreError, match=r"remove the folder and make it again|is no store of vectors"):
        made(tmp_path, Counting(SHAPES[0]))


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    """A text is found with its lone surrogates, and as the service asks, with U+FFFD for each; it is stored once."""
    raw = ["x \ud800 y", "x \ufffd y", "x \udfff y", "z"]
    path = made(tmp_path, Counting(SHAPES[0]), raw)
    store = VectorStore.open(path, first_stage_config(**SHAPES[0]))
    assert len(store) == 2
    found = store.find(raw)
    assert all(np.array_equal(found[0], each) for each in found[1:3] if each is not None)
    assert [each is None for each in found] == [False] * 4


def test_a_store_of_another_encoder_is_refused(tmp_path: Path) -> None:
    """The message names both encoders."""
    path = made(tmp_path, Counting(SHAPES[0]))
    other = first_stage_config(**SHAPES[0]).model_copy(update={"encoder": "1" * 64})
    with pytest.raises(StoreError, match=f"{'0' * 64}.*{'1' * 64}"):
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
    with pytest.raises(StoreError):
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
    with pytest.raises(StoreError, match=r"not sorted|does not have the 88 texts"):
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
        patch.setattr("cerberank_models.first_stage.store.text_digests", lambda asked: digests[[int(t) for t in asked]])
        assert [None if v is None else int(v[0]) for v in store.find(texts)] == list(range(9))


def test_without_a_text_nothing_is_written(tmp_path: Path) -> None:
    """An empty input is an error, and so is a folder with other files."""
    with pytest.raises(ValueError, match="holds no text"):
        made(tmp_path, Counting(SHAPES[0]), [])
    assert not (tmp_path / "store").exists()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").touch()
    with pytest.raises(StoreError, match="holds other files"):
        made(tmp_path, Counting(SHAPES[0]))
