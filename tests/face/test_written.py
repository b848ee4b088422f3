"""Every command that writes files ends with lines that name them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cerberank.cli import main
from tests.tiny import save_cross_encoder
from tests.training.evaluation.systems.systems import write_system
from tests.training.letters import dev_jsonl, jsonl

from cerberank_training.commands.sweep import grid

CHECKPOINT = "--data DATA --checkpoint CHECKPOINT --precision fp32"
TRAINING = "--base BASE --train DATA --dev DEV --out OUT"


@pytest.fixture
def without_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a sweep only make their folders and evaluations; every run of a grid has the same result."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "--out" in command:
            (Path(command[command.index("--out") + 1]) / "checkpoint").mkdir(parents=True)
        if "--per-question" in command:
            path = Path(command[-1])
            write_system(path.parent, 1.0, {path.stem: 5})
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(grid, "read_record", lambda folder: SimpleNamespace(results={"best": 70.0}))


@pytest.mark.usefixtures("without_runs")
@pytest.mark.parametrize(
    ("call", "files"),
    [
        (f"evaluate {CHECKPOINT}", "--json --per-question --plot --trec-run --trec-qrels"),
        (f"evaluate {CHECKPOINT} --depths 2", "--json --plot"),
        ("eval table A B", "--json --csv --latex"),
        ("eval compare A/set.jsonl B/set.jsonl", "--json"),
        (
            "eval ensemble --dev A/set.jsonl --dev B/set.jsonl --test A/set.jsonl --test B/set.jsonl --trials 1",
            "--json --per-question",
        ),
        (f"train sweep grid {TRAINING} --recipe tiny --strategy hard --learning-rate 1e-5", "OUT/table.md"),
        (
            f"train sweep cerberus {TRAINING} --recipe tiny --test DATA --teacher a --teacher b --only hard",
            "OUT/table.md",
        ),
        (f"train sweep trmd {TRAINING} --test DATA --rows mono --steps 2", "OUT/table.md"),
        ("data sample --recipe tiny --train DATA --questions 2 --out OUT", "OUT"),
        ("store push CHECKPOINT OUT", "OUT"),
        ("checkpoint card COPY --version 2", "COPY"),
        ("server keys add search --file OUT", "OUT"),
    ],
)
def test_a_command_ends_with_what_it_wrote(
    call: str, files: str, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each file, the last ones of standard output or of standard error."""
    places = {
        **{"DATA": jsonl(tmp_path), "DEV": dev_jsonl(tmp_path), "CHECKPOINT": str(tiny_checkpoint)},
        **{name: str(tmp_path / name) for name in ("A", "B", "BASE", "COPY", "OUT")},
    }
    save_cross_encoder("bert", tmp_path / "BASE")
    shutil.copytree(tiny_checkpoint, tmp_path / "COPY")
    for seed, name in enumerate(("A", "B")):
        write_system(tmp_path / name, 1.0, {"set": 5}, seed=seed)

    def placed(words: str) -> list[str]:
        return ["/".join(places.get(part, part) for part in word.split("/")) for word in words.split()]

    options = {option: str(tmp_path / f"out{option}") for option in files.split() if option.startswith("--")}
    written = list(options.values()) or placed(files)
    assert main([*placed(call), *(word for option in options.items() for word in option)]) == 0
    printed = capsys.readouterr()
    last = [line for text in printed for line in text.splitlines()[-len(written) :]]
    for path in written:
        assert Path(path).exists()
        assert any(path in line for line in last), path
