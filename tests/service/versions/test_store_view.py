"""The estimate of a version's memory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.models.stores import DAMAGES, Objects, damage
from tools.versions import versions_of

from cerberank_models.backends.registry import BACKENDS
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.checkpoint.store.protocol import CheckpointStore
from cerberank_models.checkpoint.store.url_store import UrlStore
from cerberank_service.settings import Settings
from cerberank_service.versions.memory_budget import MEMORY_PER_BYTE
from cerberank_service.versions.store_view import StoreView


@pytest.mark.parametrize(("backend", "precision"), [("onnx", "int8"), ("onnx", "fp32"), ("torch", "fp32")])
def test_only_the_files_that_the_backend_reads_count(
    tiny_checkpoint: Path, tmp_path: Path, backend: str, precision: str
) -> None:
    """A version with weights and graphs in two precisions takes what one backend opens of them."""
    store = FolderStore(tmp_path)
    reference = store.push(read_checkpoint(tiny_checkpoint))
    view = StoreView(store, Settings(backend=backend, precision=precision))
    sizes = store.sizes(reference)
    read = BACKENDS[backend].files(sizes, precision)
    assert 0 < len(read) < len(sizes)
    expected = MEMORY_PER_BYTE * sum(sizes[name] for name in read)
    assert view.read([reference], ())[reference.model].sizes == {reference.version: expected}


@pytest.fixture(params=["folder", "url"])
def both(request: pytest.FixtureRequest, tiny_checkpoint: Path, tmp_path: Path) -> CheckpointStore:
    """A store of either kind in `tmp_path / "store"` with the models `good` and `evil`, whose version 2 is stable."""
    root = tmp_path / "store"
    store: CheckpointStore = FolderStore(root) if request.param == "folder" else UrlStore(Objects(), str(root))
    for path in versions_of(tiny_checkpoint, tmp_path, ["1", "2"]).values():
        store.push(read_checkpoint(path))
    for name in ("good", "evil"):
        shutil.copytree(root / "random-tiny", root / name)
        store.move_label(name, "stable", "2")
    shutil.rmtree(root / "random-tiny")
    return store


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_model_that_cannot_be_read_leaves_the_others_alone(
    both: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A view that knew the model keeps its labels; a new one takes what is whole. The log has each problem once."""
    known, new = StoreView(both, Settings()), StoreView(both, Settings())
    assert known.read([], ())["evil"].labels == {"stable": "2"}
    damage(tmp_path / "store" / "evil", kind)
    both.move_label("good", "stable", "1")
    for view in (known, new):
        caplog.clear()
        stored = [view.read([], ()), view.read([], ())][-1]
        assert stored["good"].labels == {"stable": "1"}
        assert stored["good"].sizes["1"] > 0
        assert len(caplog.records) == len(view.problems)
        if view is known or not kind.startswith("labels"):
            assert stored["evil"].labels == {"stable": "2"}
        if kind.startswith("labels"):
            assert view.problems[0].startswith("the labels of evil cannot be read: ")
    assert "evil" not in stored or not stored["evil"].sizes.get("2")  # 0: loading it says what is wrong
