"""`cerberank checkpoint card`: what it changes, what it leaves, and what a killed call leaves behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.program import program

from cerberank_models.checkpoint.folder import read_checkpoint

main = program("checkpoint card")


@pytest.fixture
def path(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint whose name is random-tiny and whose version is 1."""
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


def test_card_name_and_version_change_and_the_manifest_stays_true(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder verifies; weights, graphs and golden questions are as they were; nothing is left beside it."""
    before = read_checkpoint(path)
    assert main([str(path), "--terms", "CC0", "--name", "mine", "--version", "2"]) == 0
    assert capsys.readouterr().out == f"{path} is mine@2\n"
    after = read_checkpoint(path)
    assert (after.config.name, after.manifest.version) == ("mine", "2")
    changed = {name for name, digest in before.manifest.files.items() if after.manifest.files[name] != digest}
    assert changed == {"README.md", "config.json"}
    assert (after.golden, after.manifest.metrics) == (before.golden, before.manifest.metrics)
    assert "## Terms\n\nCC0\n" in (path / "README.md").read_text()
    assert list(path.parent.iterdir()) == [path]


def test_a_whole_card_is_taken_from_a_file(path: Path, tmp_path: Path) -> None:
    """With terms as well, both count."""
    (tmp_path / "card.md").write_text("# ours\n\nText.\n")
    assert main([str(path), "--file", str(tmp_path / "card.md"), "--terms", "MIT"]) == 0
    read_checkpoint(path)
    assert (path / "README.md").read_text() == "# ours\n\nText.\n\n## Terms\n\nMIT\n"


def test_languages_are_stated_in_the_configuration_and_in_the_card(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`checkpoint info` tells them."""
    assert main([str(path), "--language", "en,de"]) == 0
    assert read_checkpoint(path).config.languages == ("en", "de")
    assert "This model is for texts in English and German (`en`, `de`).\n" in (path / "README.md").read_text()
    capsys.readouterr()
    assert program("checkpoint info")([str(path)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("languages")] == [
        ["languages", "en;", "de"]
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --terms, --file, --name, --version or --language"),
        (["--language", "English"], "--language 'English': codes of ISO 639-1 are two small letters"),
        (["--name", "a/b"], "--name 'a/b' is not a name"),
        (["--version", ""], "--version '' is not a name"),
        (["--terms", "nowhere.md"], "--terms nowhere.md: there is no such file"),
        (["--file", "nowhere.md"], "nowhere.md"),
    ],
)
def test_what_cannot_be_meant_changes_nothing(
    options: list[str], message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 1, the folder as it was."""
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    assert main([str(path), *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("cerberank checkpoint card: ")
    assert message in error
    assert error.count("\n") == 1
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


def test_a_call_that_was_killed_between_its_renames_is_mended(path: Path) -> None:
    """Killed by SIGKILL when the old folder is hidden and the new one is not in its place: the next call does it."""
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom cerberank_models.commands.card import card\n"
        "rename = Path.rename\n"
        "def killed(self, target):\n"
        "    if self.name == '.checkpoint.new':\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return rename(self, target)\n"
        "Path.rename = killed\ncard(Path(sys.argv[1]), terms='CC0')"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert not path.exists()
    assert main([str(path), "--version", "2"]) == 0
    made = read_checkpoint(path)
    assert made.manifest.version == "2"
    assert list(path.parent.iterdir()) == [path]
