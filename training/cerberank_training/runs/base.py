"""The model that a run starts from: its place and the SHA-256 of its files. No weights are loaded into memory."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from huggingface_hub import snapshot_download, try_to_load_from_cache

from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.checkpoint.manifest import Manifest
from cerberank_models.checkpoint.regular import file_digest, read_regular
from cerberank_models.convert.source import SourceError, find_source
from cerberank_training.runs.content import Content

MANIFEST = "manifest.json"
CHECKPOINT = ("config.json", "tokenizer.json", "model.safetensors")
"""The files that identify a checkpoint as a base. The model card is left out, so it may be edited."""
FILES = [
    *("config.json", "*.safetensors", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "*.model"),
    "teacher.json",
]
PICKLED = ["pytorch_model*.bin", "pytorch_model.bin.index.json"]
"""Files of weights that are used if a model has no safetensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A model that was found, with its identity."""

    place: str
    """The folder that the model is loaded from. For a model on the hub it is the snapshot in the local cache."""
    name: str
    """The last part of the folder's path, or the id on the hub."""
    commit: str | None
    """The hub's commit; None for a folder."""
    content: Content


def find_base(base: str) -> Base:
    """Find the folder `base`, or the model with this id on the hub. Files that are not in the cache are downloaded.

    Raises SourceError if there is no such model; if `base` looks like a path, the message names the folder.
    """
    folder = Path(base)
    if (folder / MANIFEST).is_file():
        files = Manifest.model_validate_json(read_regular(folder / MANIFEST)).files
        digests = {name: files[name] for name in CHECKPOINT if name in files}
        return Base(place=base, name=folder.resolve().name, commit=None, content={SHA256: digests})
    refuse_missing(base)
    source = find_source(base)
    if source.commit is not None:
        folder = Path(snapshot_download(base, revision=source.commit, allow_patterns=FILES, ignore_patterns="*/*"))
        if not _files(folder, ["*.safetensors"]):
            every = [*FILES, *PICKLED]
            folder = Path(snapshot_download(base, revision=source.commit, allow_patterns=every, ignore_patterns="*/*"))
    found = _files(folder, FILES)
    if not _files(folder, ["*.safetensors"]):
        found |= _files(folder, PICKLED)
    name = base if source.commit else folder.resolve().name
    digests = {name: file_digest(path) for name, path in found.items()}
    return Base(place=str(folder), name=name, commit=source.commit, content={SHA256: digests})


def _files(folder: Path, patterns: list[str]) -> dict[str, Path]:
    found = {path.name: path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return dict(sorted(found.items()))


def refuse_missing(base: str) -> None:
    """Raise SourceError for the path of a missing folder, so that the hub is not asked for it.

    A name with one slash is an id on the hub, unless there is a folder with nearly the same name.
    """
    path = Path(base)
    if path.is_dir():
        return
    is_path = base.count("/") > 1 or base.startswith((".", "~", "/")) or base.endswith("/")
    near = _near(path)
    if is_path and near is None and not path.parent.is_dir():
        raise SourceError(f"{base}: there is no such folder; there is no folder {path.parent} either")
    if is_path or (near is not None and not isinstance(try_to_load_from_cache(base, "config.json"), str)):
        raise SourceError(f"{base}: there is no such folder" + (f"; did you mean {near}?" if near else ""))


def _near(path: Path) -> Path | None:
    """The folder in the same place whose name is nearly that of `path`; None if there is none."""
    try:
        there = [each.name for each in path.parent.iterdir() if each.is_dir()]
    except OSError:
        return None
    near = get_close_matches(path.name, there, n=1)
    return path.parent / near[0] if near else None
