"""The protocol of a store: training pushes checkpoints to it, and services pull them from it.

    <store>/<model>/<version>/...   a checkpoint, which is never changed
    <store>/<model>/labels.json     {"stable": "1.2.0", ...}: the version that each label points to
    <store>/<model>/record.json     {"served": ["1.2.0", ...]}: the versions that have served as stable

The modules `folder` and `url` state what each kind of store guarantees if several processes push at once or are killed.
`open` opens a store by its address.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Protocol, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError
from cerberank_models.checkpoint.manifest import Manifest

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


class CheckpointStore(Protocol):
    """The operations on a store that training and the service need.

    Every method may raise OSError if the store cannot be reached.
    """

    def models(self) -> tuple[str, ...]:
        """The models that have versions, in alphabetical order, including models whose folder cannot be read."""

    def versions(self, model: str) -> tuple[str, ...]:
        """The versions whose push was finished, in natural order; empty for an unknown model."""

    def manifest(self, reference: Reference) -> Manifest:
        """A version's manifest. Raises NotInStoreError, or CheckpointError if it is malformed or not a small file."""

    def sizes(self, reference: Reference) -> dict[str, int]:
        """The size in bytes of each file that the manifest names, without missing files. Raises as `manifest` does."""

    def labels(self, model: str) -> dict[Label, str]:
        """The version of each label. Raises StoreError if `labels.json` is malformed, not a file or too large."""

    def push(self, checkpoint: Checkpoint) -> Reference:
        """Add a checkpoint under its own name and version. Pushing the same checkpoint again has no effect.

        Each file is hashed while it is copied, so that one that changes meanwhile is found as well. Raises
        ChangedFileError, and StoreError if another checkpoint has this version.
        """

    def pull(self, reference: Reference, target: Path) -> Checkpoint:
        """Copy a version to the folder `target` and verify it. The folder appears complete or not at all.

        Raises NotInStoreError; FileExistsError if `target` exists; CheckpointError if the copy is not valid.
        """

    def move_label(self, model: str, label: Label, version: str | None, *, only_from: str | None = None) -> str | None:
        """Move `label` to `version`, or remove it (None); returns the version that it pointed to.

        With `only_from`, LabelMovedError is raised if the label points to another version. The comparison and the move
        hold the same lock. Raises NotInStoreError if the version does not exist.
        """

    def record(self, model: str) -> Record:
        """The model's record, by default empty. Raises StoreError if it is malformed, not a file or too large."""

    def note_served(self, reference: Reference) -> None:
        """Record that the version passed every check and serves as stable."""


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


def resolve(store: CheckpointStore, name: str) -> Reference:
    """Find `model@label`, `model@version`, or `model` for its stable version. Raises NotInStoreError."""
    model, _, rest = name.partition("@")
    check_model(model)
    if rest and rest not in LABELS:
        return Reference(model, check_version(rest))
    label = check_label(rest or "stable")
    labels = store.labels(model)
    if label not in labels:
        raise NotInStoreError(f"{model} has no label {label}; its versions: {_listed(store.versions(model))}")
    return Reference(model, labels[label])


def has_versions(store: CheckpointStore, model: str) -> bool:
    """False for a model without versions. True if its folder cannot be read, so that reading a version says why."""
    try:
        return bool(store.versions(model))
    except OSError:
        return True


def missing(store: CheckpointStore, reference: Reference) -> NotInStoreError:
    """The error for a version that does not exist."""
    have = _listed(store.versions(reference.model))
    return NotInStoreError(f"{reference.model} has no version {reference.version}; its versions: {have}")


def natural_order(versions: list[str]) -> tuple[str, ...]:
    """Sort versions with their numbers compared as numbers.

    >>> natural_order(["1.10.0", "1.9.0", "2", "1.9.0-rc1"])
    ('1.9.0', '1.9.0-rc1', '1.10.0', '2')
    """

    def key(version: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", version)]

    return tuple(sorted(versions, key=key))


def parse_manifest(content: bytes, place: str) -> Manifest:
    """Parse a version's `manifest.json`. Raises CheckpointError, with `place` in the message, if it is malformed."""
    try:
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        raise CheckpointError(f"{place}: {error.errors()[0]['msg']}") from error


def parse_labels(content: bytes, place: str) -> dict[Label, str]:
    """Parse `labels.json`. Raises StoreError, with `place` in the message, if it is malformed."""
    return _parse(TypeAdapter(dict[Label, Version]), content, place)


def parse_record(content: bytes, place: str) -> Record:
    """Parse `record.json`. Raises StoreError, with `place` in the message, if it is malformed."""
    return _parse(TypeAdapter(Record), content, place)


def _parse(adapter: TypeAdapter[ParsedT], content: bytes, place: str) -> ParsedT:
    try:
        return adapter.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise StoreError(f"{place}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def render_labels(labels: dict[Label, str]) -> bytes:
    """The content of `labels.json`."""
    return TypeAdapter(dict[Label, str]).dump_json(labels, indent=2) + b"\n"


def render_record(record: Record) -> bytes:
    """The content of `record.json`."""
    return record.model_dump_json(indent=2).encode() + b"\n"


def moved_labels(
    labels: dict[Label, str], label: Label, version: str | None, only_from: str | None
) -> tuple[dict[Label, str], str | None]:
    """The labels after moving `label`, and the version that it pointed to before. Raises LabelMovedError."""
    before = labels.get(label)
    if only_from is not None and before != only_from:
        raise LabelMovedError(f"{label} stands for {before or 'no version'} and not for {only_from} any more")
    after = {name: each for name, each in labels.items() if name != label}
    if version is not None:
        after[label] = version
    return after, before


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
