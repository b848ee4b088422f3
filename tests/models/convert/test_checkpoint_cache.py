"""The cache of imported models: one import for each content, also of several processes at once. The import is faked."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.checkpoint_cache import ModelImportError, imported_checkpoint, open_cache
from cerberank_models.convert.source import Source, find_source

FP32 = ("fp32",)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A folder with a configuration alone: only its content is looked at here."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return find_source(str(tmp_path / "model"))


def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> Path:
    """Run `script` in place of Python as the process that imports; $out is the folder to make. Gives its notes."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/calls'\nfor out; do :; done\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return tmp_path / "calls"


def test_the_second_start_imports_nothing(
    source: Source, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call of `cerberank import`, with the options."""
    calls = fake(monkeypatch, tmp_path, f"cp -r '{tiny_checkpoint}' \"$out\"")
    (path,) = {imported_checkpoint(source, ("int8",), tmp_path / "cache") for _ in range(2)}
    assert calls.read_text() == (
        f"-P -m cerberank import --end-with-stdin --name=model --forms=int8 -- {source.place} {path}\n"
    )
    assert sorted(item.name for item in (tmp_path / "cache").iterdir()) == [path.name, f"{path.name}.lock"]


def test_what_is_imported_and_how_gives_the_place(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content, precisions, the program's version and the commit each give another."""
    monkeypatch.setattr("cerberank_models.convert.checkpoint_cache.made_checkpoint", lambda path, make: path)

    def place(source: Source, precisions: tuple[str, ...] = FP32) -> Path:
        return imported_checkpoint(source, precisions, tmp_path)

    places = [place(source), place(source, ("int8",))]
    places += [
        place(Source(place=name, folder=source.folder, commit=commit))
        for name, commit in (("a/model", "1"), ("b/model", "1"), ("a/model", "2"))
    ]
    (source.folder / "config.json").write_text('{"changed": true}')
    places.append(place(source))
    monkeypatch.setattr("cerberank_models.convert.checkpoint_cache.__version__", "9")
    places.append(place(source))
    assert len(set(places)) == len(places)


def test_a_damaged_checkpoint_is_imported_again(
    source: Source,
    tiny_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log names the file that has changed; then the checkpoint is whole, and what a killed import left is gone."""
    calls = fake(monkeypatch, tmp_path, f"cp -r '{tiny_checkpoint}' \"$out\"")
    path = imported_checkpoint(source, FP32, tmp_path / "cache")
    (path / "tokenizer.json").write_text("{}")
    remains = path.with_name(f".{path.name}.killed")
    remains.mkdir()
    assert imported_checkpoint(source, FP32, tmp_path / "cache") == path
    assert "is damaged and will be made again" in caplog.text
    assert "tokenizer.json" in caplog.text
    read_checkpoint(path)
    assert not remains.exists()
    assert len(calls.read_text().splitlines()) == 2


def test_of_several_at_once_one_imports(
    source: Source, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it."""
    calls = fake(monkeypatch, tmp_path, f"sleep 0.3; cp -r '{tiny_checkpoint}' \"$out\"")
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda _: imported_checkpoint(source, FP32, tmp_path / "cache"), range(4)))
    assert len(set(got)) == 1
    assert len(calls.read_text().splitlines()) == 1


def test_an_import_is_reported_until_it_ends(
    source: Source, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No report claims that it has succeeded."""
    monkeypatch.setattr("cerberank_models.convert.checkpoint_cache.REPORT_SECONDS", 0.05)
    fake(monkeypatch, tmp_path, f"sleep 0.5; cp -r '{tiny_checkpoint}' \"$out\"")
    reports: list[str] = []
    imported_checkpoint(source, FP32, tmp_path / "cache", report=reports.append)
    assert reports[0] == "model is being imported; this takes up to some minutes, and is not repeated at the next start"
    assert set(reports[1:]) == {f"model is being imported, for {each} seconds so far" for each in (0, 1)} & set(reports)
    assert len(reports) > 2


def test_a_failed_import_says_why(
    source: Source, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines of the verb's message, else the last line; nothing is kept, so the next start tries again."""
    message = "echo 'cerberank import: it has' >&2; echo '3 labels' >&2"
    raised = "echo 'cerberank import: pairs are cut'; echo 'Traceback (most recent call last):'; echo ' x'; echo 'E: y'"
    messages = {f"echo noise; {message}": "it has 3 labels", "echo a; echo b": "b", "": "it ended .*", raised: "E: y"}
    for script, message in messages.items():
        fake(monkeypatch, tmp_path, f"{script}\nexit 1")
        with pytest.raises(ModelImportError, match=f"model was not imported: {message}$"):
            imported_checkpoint(source, FP32, tmp_path / "cache")
    fake(monkeypatch, tmp_path, "echo 'cerberank import: pairs are cut' >&2; kill -9 $$")
    with pytest.raises(ModelImportError, match=r"its process was killed by signal 9 \(out of memory\?\)$"):
        imported_checkpoint(source, FP32, tmp_path / "cache")
    fake(monkeypatch, tmp_path, f"cp -r '{tiny_checkpoint}' \"$out\"")
    assert imported_checkpoint(source, FP32, tmp_path / "cache").is_dir()


def test_the_usual_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's cache folder, which XDG_CACHE_HOME moves, or where the caller says."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert open_cache() == tmp_path / "caches" / "cerberank"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_cache() == tmp_path / "home" / ".cache" / "cerberank"
    assert open_cache(tmp_path / "chosen").is_dir()


def test_a_user_without_a_home_is_told_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that the system does not know, and a home that nobody can write to."""

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "file").touch()
    for home in (unknown, lambda: tmp_path / "file"):
        monkeypatch.setattr(Path, "home", home)
        with pytest.raises(OSError, match=r"set XDG_CACHE_HOME to one$"):
            open_cache()
