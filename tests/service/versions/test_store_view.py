"""What a version is estimated to take in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_models.backends.registry import BACKENDS
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder import FolderStore
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
