"""A store of checkpoints: training pushes checkpoints to it, and services pull them from it.

    <store>/<model>/<version>/...   a checkpoint, which is never changed
    <store>/<model>/labels.json     {"stable": "1.2.0", ...}: the version that each label points to
    <store>/<model>/record.json     {"served": ["1.2.0", ...]}: the versions that have served as stable

The modules `folder_store` and `url_store` state what each kind of store guarantees if several processes push at once or
are killed. `open_store` opens a store by its address.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.checkpoint.manifest import MANIFEST, Manifest

Label = Literal["stable", "canary", "shadow"]
LABELS: tuple[Label, ...] = get_args(Label)
LABELS_FILE, RECORD_FILE = "labels.json", "record.json"
MOST_SERVED = 5
"""The most versions in the record."""

LONGEST_NAME = 96
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}")
"""The valid names of models and versions. Names of hidden files and paths do not match."""
Version = Annotated[str, StringConstraints(pattern=f"^{NAME.pattern}$")]
ParsedT = TypeVar("ParsedT")


class StoreError(ValueError):
    """The store rejects the operation, or its content is invalid; the message says what is wrong."""


class NotInStoreError(StoreError):
    """There is no such model, version or label."""


class LabelMovedError(StoreError):
    """The label does not point to the version from which it was to be moved."""


class Reference(NamedTuple):
    """A model and a version of it, both with valid names."""

    model: str
    version: str


class Record(BaseModel):
    """The content of `record.json`, which services write. Writers must hold the lock of the labels."""

    model_config = ConfigDict(frozen=True)

    served: tuple[Version, ...] = ()
    """The versions that passed every check and served as stable, the latest first; at most MOST_SERVED."""

    def with_served(self, version: str) -> Record:
        """The record with `version` as the latest version that served."""
        earlier = [name for name in self.served if name != version]
        return self.model_copy(update={"served": (version, *earlier)[:MOST_SERVED]})


class CheckpointStore(ABC):
    """A store. The two kinds differ in how files are read, replaced and locked, and in how a checkpoint is copied.

    Every method may raise OSError if the store cannot be reached. Paths are relative to the store's root.
    """

    def models(self) -> tuple[str, ...]:
        """The models that have versions, in alphabetical order, including models whose folder cannot be read.

        Raises FileNotFoundError if the store does not exist.
        """
        self._check_exists()
        return tuple(sorted(name for name in self._folders("") if self._has_versions(name)))

    def versions(self, model: str) -> tuple[str, ...]:
        """The versions whose push was finished, in natural order; empty for an unknown model."""
        folder = check_model(model)
        return natural_order([name for name in self._folders(folder) if self._is_file(f"{folder}/{name}/{MANIFEST}")])

    def manifest(self, reference: Reference) -> Manifest:
        """A version's manifest. Raises NotInStoreError, or CheckpointError if it is malformed or not a small file."""
        path = f"{_folder(reference)}/{MANIFEST}"
        if (content := self._read(path, CheckpointError)) is None:
            raise self.missing(reference)
        try:
            return Manifest.model_validate_json(content)
        except ValidationError as error:
            raise CheckpointError(f"{self._place(path)}: {error.errors()[0]['msg']}") from error

    def sizes(self, reference: Reference) -> dict[str, int]:
        """The size in bytes of each file that the manifest names, without missing files. Raises as `manifest` does."""
        sizes = {name: self._size(f"{_folder(reference)}/{name}") for name in self.manifest(reference).files}
        return {name: size for name, size in sizes.items() if size is not None}

    def labels(self, model: str) -> dict[Label, str]:
        """The version of each label. Raises StoreError if `labels.json` is malformed, not a file or too large."""
        return self._parsed(f"{check_model(model)}/{LABELS_FILE}", TypeAdapter(dict[Label, Version]), {})

    def record(self, model: str) -> Record:
        """The model's record, by default empty. Raises StoreError if it is malformed, not a file or too large."""
        return self._parsed(f"{check_model(model)}/{RECORD_FILE}", TypeAdapter(Record), Record())

    def push(self, checkpoint: Checkpoint) -> Reference:
        """Add a checkpoint under its own name and version. Pushing the same checkpoint again has no effect.

        Each file is hashed while it is copied, so that one that changes meanwhile is found as well. Raises
        ChangedFileError, and StoreError if another checkpoint has this version.
        """
        reference = Reference(check_model(checkpoint.config.name), check_version(checkpoint.manifest.version))
        self._add(checkpoint, reference)
        return reference

    def pull(self, reference: Reference, target: Path) -> Checkpoint:
        """Copy a version to the folder `target` and verify it. The folder appears complete or not at all.

        Raises NotInStoreError; FileExistsError if `target` exists; CheckpointError if the copy is not valid.
        """
        return self._copy(self.manifest(reference), _folder(reference), target)

    def move_label(self, model: str, label: Label, version: str | None, *, only_from: str | None = None) -> str | None:
        """Move `label` to `version`, or remove it (None); returns the version that it pointed to.

        With `only_from`, LabelMovedError is raised if the label points to another version. The comparison and the move
        hold the same lock. Raises NotInStoreError if the version does not exist.
        """
        if version is not None and not self._is_file(f"{_folder(Reference(model, version))}/{MANIFEST}"):
            raise self.missing(Reference(model, version))
        with self._locked(check_model(model)):
            labels = self.labels(model)
            before = labels.pop(label, None)
            if only_from is not None and before != only_from:
                raise LabelMovedError(f"{label} stands for {before or 'no version'} and not for {only_from} any more")
            if version is not None:
                labels[label] = version
            if version != before:
                content = TypeAdapter(dict[Label, str]).dump_json(labels, indent=2) + b"\n"
                self._replace(f"{model}/{LABELS_FILE}", content)
        return before

    def note_served(self, reference: Reference) -> None:
        """Record that the version passed every check and serves as stable, unless it is the latest one that did."""
        model, version = reference
        if self.record(model).served[:1] == (version,):
            return
        with self._locked(model):
            record = self.record(model).with_served(version)
            self._replace(f"{model}/{RECORD_FILE}", record.model_dump_json(indent=2).encode() + b"\n")

    def resolve(self, name: str) -> Reference:
        """Find `model@label`, `model@version`, or `model` for its stable version. Raises NotInStoreError."""
        model, _, rest = name.partition("@")
        check_model(model)
        if rest and rest not in LABELS:
            return Reference(model, check_version(rest))
        label = check_label(rest or "stable")
        labels = self.labels(model)
        if label not in labels:
            raise NotInStoreError(f"{model} has no label {label}; its versions: {self._versions_text(model)}")
        return Reference(model, labels[label])

    def missing(self, reference: Reference) -> NotInStoreError:
        """The error for a version that does not exist."""
        model, version = reference
        return NotInStoreError(f"{model} has no version {version}; its versions: {self._versions_text(model)}")

    def _versions_text(self, model: str) -> str:
        return ", ".join(self.versions(model)) or "none"

    def _has_versions(self, model: str) -> bool:
        """False for a model without versions. True if its folder cannot be read: reading a version then says why."""
        try:
            return bool(self.versions(model))
        except OSError:
            return True

    def _parsed(self, path: str, adapter: TypeAdapter[ParsedT], default: ParsedT) -> ParsedT:
        """The content of a small file; `default` if it is missing. Raises StoreError if it is malformed."""
        if (content := self._read(path, StoreError)) is None:
            return default
        try:
            return adapter.validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            raise StoreError(f"{self._place(path)}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    @abstractmethod
    def _check_exists(self) -> None:
        """Raise FileNotFoundError if the store does not exist."""

    @abstractmethod
    def _folders(self, path: str) -> list[str]:
        """The names of folders that may be models or versions; empty if there is no such folder."""

    @abstractmethod
    def _is_file(self, path: str) -> bool:
        """True if there is a regular file."""

    @abstractmethod
    def _size(self, path: str) -> int | None:
        """The size of a file in bytes; None if it is missing."""

    @abstractmethod
    def _read(self, path: str, refused: type[CheckpointError | StoreError]) -> bytes | None:
        """The content of a small file; None if it is missing. Raises `refused` for a special file or a large one."""

    @abstractmethod
    def _place(self, path: str) -> str:
        """The path with the store's root, for messages."""

    @abstractmethod
    def _replace(self, path: str, content: bytes) -> None:
        """Replace a small file: readers see the old or the new content. The model's lock is held."""

    @abstractmethod
    def _locked(self, model: str) -> AbstractContextManager[None]:
        """The lock of a model's labels and record, for one block."""

    @abstractmethod
    def _add(self, checkpoint: Checkpoint, reference: Reference) -> None:
        """Copy a checkpoint to its place in the store; see `push`."""

    @abstractmethod
    def _copy(self, manifest: Manifest, path: str, target: Path) -> Checkpoint:
        """Copy a version's folder to `target`; see `pull`."""


def _folder(reference: Reference) -> str:
    return f"{check_model(reference.model)}/{check_version(reference.version)}"


def is_name(name: str) -> bool:
    """True if `name` is valid as a model's or a version's name."""
    return NAME.fullmatch(name) is not None


def name_of(place: str) -> str:
    """The name of a model in the folder or repository that is called `place`, which may be called anything.

    Accents are left out, and other characters become hyphens. Where a letter outside of ASCII is lost, or the end of a
    long name, a digest takes its place, so that places that differ in these keep different names.

    >>> name_of("my modèle (1)"), name_of(".hidden"), name_of("модель-v2")
    ('my-modele-1', 'hidden', 'v2-6c7d923e')
    """
    if is_name(place):
        return place
    plain = "".join(each for each in unicodedata.normalize("NFKD", place) if not unicodedata.combining(each))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("._-")
    if len(name) > LONGEST_NAME or not name or any(each.isalnum() and not each.isascii() for each in plain):
        digest = hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:8]
        name = f"{name[: LONGEST_NAME - 9] or 'model'}-{digest}"
    return name


def check_model(name: str) -> str:
    """Return `name` if it is a valid model name, else raise StoreError. A path out of the store is not a valid name."""
    if not NAME.fullmatch(name):
        raise StoreError(f"{name!r} is not a model name: it takes letters, digits, '.', '_' and '-', at most 96")
    return name


def check_version(name: str) -> str:
    """Return `name` if it is a valid version, else raise StoreError. Labels and the store's file names are reserved."""
    if not NAME.fullmatch(name) or name in (*LABELS, LABELS_FILE, RECORD_FILE):
        raise StoreError(
            f"{name!r} is not a version: it takes letters, digits, '.', '_' and '-', at most 96, and is not a label"
        )
    return name


def check_label(name: str) -> Label:
    """Return `name` as a label. Raises StoreError if there is no such label."""
    for label in LABELS:
        if name == label:
            return label
    raise StoreError(f"{name!r} is not a label: there are {', '.join(LABELS)}")


def natural_order(versions: list[str]) -> tuple[str, ...]:
    """Sort versions with their numbers compared as numbers.

    >>> natural_order(["1.10.0", "1.9.0", "2", "1.9.0-rc1"])
    ('1.9.0', '1.9.0-rc1', '1.10.0', '2')
    """

    def key(version: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", version)]

    return tuple(sorted(versions, key=key))
