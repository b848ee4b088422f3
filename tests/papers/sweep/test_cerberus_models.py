"""`train sweep cerberus-models` on tiny random encoders: every row of the table, from the encoders to the figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.program import program
from tests.tiny import save_cross_encoder
from tests.training.letters import dev_jsonl, jsonl

from cerberank_papers.sweep.cerberus_models import ENSEMBLES, ROWS, STUDENTS

sweep = program("train sweep cerberus-models")
SHORT = "--steps 1 --evaluate-every 1 --warmup 0 --max-length 32 --examples-per-step 2"


def words(folder: Path, *more: str) -> list[str]:
    models = {
        size: [save_cross_encoder(family, folder / f"{family}-{size}", seed=seed, **shape) for family in FAMILIES]
        for seed, (size, shape) in enumerate({"large": {}, "base": {"num_hidden_layers": 12}}.items())
    }
    data = jsonl(folder)
    return [
        *(part for size, places in models.items() for part in (f"--{size}", ",".join(map(str, places)))),
        *("--train", data, "--dev", dev_jsonl(folder), "--test", data, "--device", "cpu"),
        *("--teach-options", f"{SHORT} --precision fp32", "--distil-options", SHORT),
        *("--out", str(folder / "out"), *more),
    ]


FAMILIES = ("albert", "roberta", "electra")


def test_every_row_has_figures(tmp_path: Path, ran: list[str]) -> None:
    """All rows by one call, with two steps of plain models; a further call runs nothing."""
    call = words(tmp_path, "--transfer", jsonl(tmp_path), "--transfer-dev", dev_jsonl(tmp_path))
    assert sweep(call) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    rows = [line.split(" ")[1] for line in table.split("\n\n")[0].splitlines()[2:]]
    assert rows == list(ROWS)
    # Six plain models and two further ones for hydra, each by two steps.
    assert ran.count("teach") == 2 * (6 + 2)
    assert (ran.count("distil"), ran.count("results")) == (len(STUDENTS), len(ENSEMBLES))
    ran.clear()
    assert sweep(call) == 0
    assert ran == []


def test_one_step_and_further_seeds(tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without a first step the presets are those of ASNQ; large models have one seed, base models all of them."""
    assert sweep(words(tmp_path, "--rows", "albert-large,albert-base", "--seeds", "1,2")) == 0
    assert ran == ["teach", "import", "evaluate"] * 3
    assert "| albert-base (2 runs) |" in capsys.readouterr().out
    assert sweep(words(tmp_path, "--rows", "albert-base", "--transfer", jsonl(tmp_path))) == 2
    assert sweep(words(tmp_path, "--rows", "albert-base", "--large", "one")) == 2
    call = words(tmp_path)
    call[call.index("--distil-options") + 1] = "--heds 2"
    assert sweep(call) == 2
    errors = capsys.readouterr().err
    assert "--heds" in errors
    assert "--transfer and --transfer-dev go together" in errors
    assert "are three models each" in errors
