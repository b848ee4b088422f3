"""`train sweep ssp` on a tiny random encoder: pre-training, fine-tuning with and without context, and the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.papers.pretraining.documents import articles
from tests.papers.pretraining.networks import save_base
from tests.program import program, replaced
from tests.training.letters import dev_jsonl, jsonl

from cerberank_papers.sweep.ssp import ROWS

sweep = program("train sweep ssp")


def words(folder: Path, *more: str) -> list[str]:
    data, held_out = jsonl(folder), articles(folder / "held-out", sizes=(4, 3, 5))
    short = "--steps 1 --evaluate-every 1 --warmup 0 --precision fp32 --max-length 48"
    return [
        *("--target", "wikiqa-electra", "--base", str(save_base("electra", folder / "base")), "--device", "cpu"),
        *("--documents", articles(folder), "--dev-documents", held_out),
        *("--train", data, "--dev", dev_jsonl(folder), "--test", data),
        *("--pretrain-options", f"{short} --examples-per-step 10 --dev-groups 1"),
        *("--teach-options", f"{short} --examples-per-step 2", "--out", str(folder / "out"), *more),
    ]


def test_every_row_has_figures(tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Four of the six rows are pre-trained once for all seeds; a further call runs nothing, or is refused."""
    assert sweep(words(tmp_path)) == 0
    assert (ran.count("pretrain"), ran.count("teach"), ran.count("evaluate")) == (4, 6, 6)
    table = (tmp_path / "out" / "table.md").read_text()
    assert [line.split(" ")[1] for line in table.split("\n\n")[0].splitlines()[2:]] == list(ROWS)
    ran.clear()
    assert sweep(words(tmp_path)) == 0
    assert ran == []
    assert sweep(words(tmp_path, "--rows", "dpc", "--seeds", "2")) == 0
    assert ran == ["teach", "import", "evaluate"]
    assert sweep(replaced(words(tmp_path), "--target", "asnq-electra")) == 1
    assert "target 'wikiqa-electra', not 'asnq-electra'" in capsys.readouterr().err
