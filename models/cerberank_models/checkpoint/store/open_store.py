"""Opens the store at an address: a folder (also as `file://`) or, if fsspec is installed, any URL that fsspec knows."""

from __future__ import annotations

from pathlib import Path

from cerberank_models.checkpoint.store.checkpoint_store import CheckpointStore, StoreError
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.checkpoint.store.url_store import UrlStore
from cerberank_models.output import installed_by


def open_store(address: str) -> CheckpointStore:
    """The store at a folder or an fsspec URL, which need not exist yet.

    Raises StoreError for a URL that fsspec does not know, or whose library is not installed.
    """
    for scheme in ("file://", "local://"):
        address = address.removeprefix(scheme)
    if "://" not in address:
        return FolderStore(Path(address))
    import fsspec  # noqa: PLC0415 - stores in folders need no fsspec

    try:
        filesystem, root = fsspec.url_to_fs(address, use_listings_cache=False)
    except (ImportError, ValueError) as error:
        extra = f"; {installed_by('s3')}" if address.startswith("s3") and isinstance(error, ImportError) else ""
        raise StoreError(f"{address}: {error}{extra}") from error
    return UrlStore(filesystem, root)
