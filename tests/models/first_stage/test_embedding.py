"""A store that was begun goes on with the same arguments alone, and a finished one is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.first_stages import first_stage_config
from tests.models.first_stage.making import SHAPES, TEXTS, Counting, made
from tests.tiny import bert_tokenizer

from cerberank_models.checkpoint.bound import BoundError
from cerberank_models.first_stage.embedding import Vectors, embed, encoder_of
from cerberank_models.first_stage.vector_store import (
    DIGESTS,
    MANIFEST,
    VECTORS,
    VectorStore,
    VectorStoreError,
)
from cerberank_models.shards import map_here
from cerberank_models.text_encoding import TextEncoder


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """Shards that were written are not computed again, and the store is byte for byte that of a whole run."""
    shape = SHAPES[0]
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, Counting(shape, dies_after=40))
    with pytest.raises(VectorStoreError, match="not finished"):
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
    with pytest.raises(BoundError, match=r"begun with inputs "):
        made(tmp_path, Counting(shape), TEXTS[1:])
    with pytest.raises(BoundError, match=r"begun with computed_by 'aaaa.* not 'bbbb"):
        made(tmp_path, Counting(shape), graph="b")
    other = Counting(shape)
    other.config = other.config.model_copy(update={"encoder": "1" * 64})
    with pytest.raises(BoundError, match="begun with encoder '0000"):
        made(tmp_path, other)
    rough = Counting(shape)
    rough.precision = "bf16"
    with pytest.raises(BoundError, match="begun with precision 'fp32', not 'bf16'"):
        made(tmp_path, rough)


def test_shards_may_come_in_any_order(tmp_path: Path) -> None:
    """An engine that returns the last shard first makes the same store, byte for byte."""
    backend = Counting(SHAPES[0])
    one = map_here(encoder_of(backend, TextEncoder(bert_tokenizer(), backend.config)))

    def backwards(shards: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, Vectors]]:
        yield from reversed(list(one(shards)))

    names = {"inputs": "0" * 64, "computed_by": "0" * 64, "config": backend.config, "precision": "fp32", "shard": 16}
    stores = [tmp_path / "ordered", tmp_path / "backwards"]
    for store, shard_map in zip(stores, (one, backwards), strict=True):
        embed(lambda: iter(TEXTS), store, **names, shard_map=shard_map)
    first, second = ({each.name: each.read_bytes() for each in store.iterdir()} for store in stores)
    assert first == second


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

    monkeypatch.setattr("cerberank_models.first_stage.embedding._write_part", killed)
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
    with pytest.raises(VectorStoreError, match=r"remove the folder and make it again|is not a store of vectors"):
        made(tmp_path, Counting(SHAPES[0]))


def test_without_a_text_nothing_is_written(tmp_path: Path) -> None:
    """An empty input is an error, and so is a folder with other files."""
    with pytest.raises(ValueError, match="holds no text"):
        made(tmp_path, Counting(SHAPES[0]), [])
    assert not (tmp_path / "store").exists()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine").touch()
    with pytest.raises(VectorStoreError, match="holds other files"):
        made(tmp_path, Counting(SHAPES[0]))
