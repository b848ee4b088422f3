"""The guarantees of every store, on a folder and on objects behind fsspec."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.stores import Objects
from tools.versions import edit, versions_of

from cerberank_models.checkpoint.folder import ChangedFileError, CheckpointError, read_checkpoint
from cerberank_models.checkpoint.store.checkpoint_store import (
    MOST_SERVED,
    CheckpointStore,
    LabelMovedError,
    NotInStoreError,
    Record,
    Reference,
    StoreError,
    check_label,
    check_model,
    check_version,
)
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_models.checkpoint.store.open_store import open_store
from cerberank_models.checkpoint.store.url_store import UrlStore

MODEL = "random-tiny"


@pytest.fixture(params=["folder", "objects"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store."""
    return str(request.param)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """The address of the store's files."""
    return str(tmp_path / "store")


@pytest.fixture
def store(kind: str, address: str) -> CheckpointStore:
    """An empty store of the kind."""
    return UrlStore(Objects(), address) if kind == "objects" else open_store(address)


def test_an_address_says_what_kind_of_store_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """file:// gives a folder store; for a URL whose library is missing, the error names the extra that has it."""
    assert isinstance(open_store(f"file://{tmp_path}"), FolderStore)
    assert isinstance(open_store("memory://x"), UrlStore)
    with pytest.raises(StoreError, match="nowhere://x"):
        open_store("nowhere://x")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(StoreError, match=r"s3://bucket: .*pip install '\.\[s3\]'"):
        open_store("s3://bucket")


def test_an_empty_store_holds_nothing(store: CheckpointStore) -> None:
    """It need not exist before the first push, and reading it creates nothing; that it is missing is told."""
    with pytest.raises(FileNotFoundError):
        store.models()
    assert (store.versions(MODEL), store.labels(MODEL), store.record(MODEL)) == ((), {}, Record())
    with pytest.raises(NotInStoreError, match="its versions: none"):
        store.manifest(Reference(MODEL, "1"))
    with pytest.raises(NotInStoreError, match="has no version 1"):
        store.move_label(MODEL, "stable", "1")
    assert store.move_label(MODEL, "stable", None) is None


def test_what_is_pushed_is_listed_and_pulled(store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Pulled files equal the pushed ones byte for byte; versions are listed in natural order."""
    for path in versions_of(tiny_checkpoint, tmp_path, ["10", "9", "9-rc1"]).values():
        store.push(read_checkpoint(path))
    assert store.models() == (MODEL,)
    assert store.versions(MODEL) == ("9", "9-rc1", "10")
    assert store.manifest(Reference(MODEL, "9")).source == "made as 9"
    pulled = store.pull(Reference(MODEL, "9"), tmp_path / "pulled")
    assert pulled.manifest.version == "9"
    names = {item.relative_to(pulled.path) for item in pulled.path.rglob("*") if item.is_file()}
    assert all((pulled.path / name).read_bytes() == (tmp_path / "as-9" / name).read_bytes() for name in names)
    with pytest.raises(FileExistsError):
        store.pull(Reference(MODEL, "9"), tmp_path / "pulled")
    with pytest.raises(NotInStoreError, match="its versions: 9, 9-rc1, 10"):
        store.pull(Reference(MODEL, "11"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_version_never_changes(store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The same push again is not an error; another checkpoint under its name is refused and changes nothing."""
    path = versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]
    store.push(read_checkpoint(path))
    store.push(read_checkpoint(path))
    edit(path, source="another")
    with pytest.raises(StoreError, match="never changed"):
        store.push(read_checkpoint(path))
    assert store.manifest(Reference(MODEL, "1")).source == "made as 1"


def test_a_file_that_changes_before_it_is_pushed_is_found(
    store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """The files that are written are hashed, so that nothing of them has to be hashed when the checkpoint is read."""
    path = versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]
    checkpoint, card = read_checkpoint(path, hashed=False), (path / "README.md").read_bytes()
    (path / "README.md").write_bytes(card.swapcase())
    with pytest.raises(ChangedFileError, match=r"as-1/README\.md does not have the SHA-256"):
        store.push(checkpoint)
    assert store.versions(MODEL) == ()
    (path / "README.md").write_bytes(card)
    assert store.push(checkpoint) == Reference(MODEL, "1")


def test_labels_move_only_to_versions_that_are_there(
    store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Each move returns the version before; the file is plain JSON."""
    for path in versions_of(tiny_checkpoint, tmp_path, ["1", "2"]).values():
        store.push(read_checkpoint(path))
    assert store.move_label(MODEL, "stable", "1") is None
    assert store.move_label(MODEL, "canary", "2") is None
    assert store.move_label(MODEL, "stable", "2") == "1"
    with pytest.raises(NotInStoreError, match="its versions: 1, 2"):
        store.move_label(MODEL, "stable", "3")
    assert store.labels(MODEL) == {"stable": "2", "canary": "2"}
    assert store.move_label(MODEL, "canary", None) == "2"
    assert store.labels(MODEL) == {"stable": "2"}


def test_a_label_moves_only_from_the_expected_version(
    store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Compared under the lock; a label that moved meanwhile stays."""
    for path in versions_of(tiny_checkpoint, tmp_path, ["1", "2", "3"]).values():
        store.push(read_checkpoint(path))
    with pytest.raises(LabelMovedError, match="no version"):
        store.move_label(MODEL, "stable", "2", only_from="1")
    store.move_label(MODEL, "stable", "3")
    with pytest.raises(LabelMovedError, match="stands for 3 and not for 2"):
        store.move_label(MODEL, "stable", "1", only_from="2")
    assert store.labels(MODEL) == {"stable": "3"}
    assert store.move_label(MODEL, "stable", "1", only_from="3") == "3"
    assert store.labels(MODEL) == {"stable": "1"}


def test_of_moves_from_one_version_one_succeeds(store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """However many controllers move the label at once."""
    for path in versions_of(tiny_checkpoint, tmp_path, ["1", "2"]).values():
        store.push(read_checkpoint(path))
    store.move_label(MODEL, "stable", "2")

    def take_back(_: int) -> bool:
        try:
            return store.move_label(MODEL, "stable", "1", only_from="2") == "2"
        except LabelMovedError:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(take_back, range(8))) == 1


def test_the_record_remembers_what_served(store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The last version first, each once, a few in all."""
    versions = [str(number) for number in range(MOST_SERVED + 2)]
    for path in versions_of(tiny_checkpoint, tmp_path, versions).values():
        store.push(read_checkpoint(path))
    for version in (*versions, versions[-2]):
        store.note_served(Reference(MODEL, version))
        store.note_served(Reference(MODEL, version))
    assert store.record(MODEL).served == (versions[-2], versions[-1], *reversed(versions[2:-2]))
    assert store.models() == (MODEL,)


def test_a_name_resolves_to_a_version(store: CheckpointStore, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """`model` alone is its stable version; for a missing label, the error lists the versions."""
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]))
    assert store.resolve(f"{MODEL}@1") == Reference(MODEL, "1")
    with pytest.raises(NotInStoreError, match="has no label stable; its versions: 1"):
        store.resolve(MODEL)
    store.move_label(MODEL, "stable", "1")
    assert store.resolve(MODEL) == store.resolve(f"{MODEL}@stable") == Reference(MODEL, "1")
    for name in ("../x", f"{MODEL}@../1", f"{MODEL}@a@b", ""):
        with pytest.raises(StoreError):
            store.resolve(name)


def test_a_push_that_was_not_finished_is_no_version(
    store: CheckpointStore, address: str, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Files without a manifest, as a killed `cp` or upload leaves them, are not version."""
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]))
    remove(address, "1/manifest.json")
    assert (store.models(), store.versions(MODEL)) == ((), ())
    with pytest.raises(NotInStoreError):
        store.move_label(MODEL, "stable", "1")


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "labels.json"), ('{"best": "1"}', "labels.json: best"), ('{"stable": "../1"}', "labels.json: stable")],
)
def test_malformed_labels_are_refused(
    *, store: CheckpointStore, address: str, tiny_checkpoint: Path, tmp_path: Path, content: str, message: str
) -> None:
    """Malformed labels are refused and not overwritten."""
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]))
    store.move_label(MODEL, "stable", "1")
    write(address, "labels.json", content.encode())
    with pytest.raises(StoreError, match=message):
        store.labels(MODEL)
    with pytest.raises(StoreError, match=message):
        store.move_label(MODEL, "canary", "1")


def test_what_a_store_is_read_for_is_bounded(
    store: CheckpointStore, address: str, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Labels, record and manifest of more than 1 MB are refused by name, however well formed they are."""
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]))
    for name in ("labels.json", "record.json", "1/manifest.json"):
        write(address, name, b"{}" + b" " * (1 << 20))
    message = r"{}\.json has more than 1048576 bytes"
    with pytest.raises(StoreError, match=message.format("labels")):
        store.labels(MODEL)
    with pytest.raises(StoreError, match=message.format("record")):
        store.record(MODEL)
    for read in (store.manifest, store.sizes, lambda reference: store.pull(reference, tmp_path / "pulled")):
        with pytest.raises(CheckpointError, match=message.format("manifest")):
            read(Reference(MODEL, "1"))
    assert not (tmp_path / "pulled").exists()


def test_a_pull_believes_nothing(store: CheckpointStore, address: str, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A changed file is detected, a manifest with a path outside is refused, and no folder appears."""
    store.push(read_checkpoint(versions_of(tiny_checkpoint, tmp_path, ["1"])["1"]))
    write(address, "1/README.md", b"changed")
    with pytest.raises(CheckpointError, match=r"README\.md does not have the SHA-256"):
        store.pull(Reference(MODEL, "1"), tmp_path / "pulled")
    manifest = store.manifest(Reference(MODEL, "1")).model_dump()
    manifest["files"]["../../escaped"] = "0" * 64
    write(address, "1/manifest.json", json.dumps(manifest).encode())
    with pytest.raises(CheckpointError, match="not a path within"):
        store.pull(Reference(MODEL, "1"), tmp_path / "pulled")
    assert not (tmp_path / "pulled").exists()
    assert not (tmp_path / "escaped").exists()


@given(st.text(max_size=8) | st.sampled_from(["..", ".", "a/b", "a\\b", "/a", "~", "a\n", "%2e%2e", "a" * 97, ""]))
def test_no_name_leads_out_of_the_store(name: str) -> None:
    """Every accepted name is one visible folder directly below the store."""
    for check in (check_model, check_version):
        try:
            check(name)
        except StoreError:
            continue
        assert (Path("/store") / name).resolve() == Path("/store", name)
        assert name.isascii()
        assert not name.startswith(".")


def test_versions_and_labels_cannot_be_mistaken_for_each_other() -> None:
    """Labels and `labels.json` are refused as versions, so `model@stable` means the label."""
    for name in ("stable", "canary", "shadow", "labels.json"):
        with pytest.raises(StoreError, match="is not a version"):
            check_version(name)
    with pytest.raises(StoreError, match="'best' is not a label: there are stable, canary, shadow"):
        check_label("best")


def test_a_folder_needs_no_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only URLs import fsspec."""
    monkeypatch.setattr(fsspec, "url_to_fs", lambda *_: pytest.fail("fsspec was used"))
    assert open_store(str(tmp_path)).models() == ()


def write(address: str, name: str, content: bytes) -> None:
    """Change a file of the model behind the store's back."""
    files, root = fsspec.url_to_fs(address)
    files.pipe_file(f"{root}/{MODEL}/{name}", content)


def remove(address: str, name: str) -> None:
    """Remove a file of the model behind the store's back."""
    files, root = fsspec.url_to_fs(address)
    files.rm_file(f"{root}/{MODEL}/{name}")


def test_the_sizes_of_a_version_s_files_are_known_before_it_is_pulled(
    store: CheckpointStore, tiny_checkpoint: Path
) -> None:
    """The sizes equal those on disk; an unknown version is an error."""
    reference = store.push(read_checkpoint(tiny_checkpoint))
    files = {path.relative_to(tiny_checkpoint).as_posix(): path for path in tiny_checkpoint.rglob("*.*")}
    expected = {name: path.stat().st_size for name, path in files.items() if name != "manifest.json"}
    assert store.sizes(reference) == expected
    with pytest.raises(NotInStoreError):
        store.sizes(Reference(MODEL, "99"))
