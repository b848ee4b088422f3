"""Questions of one size, and that every system answers them, on a tiny checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.first_stages import attached

from cerberank_benchmarks.command import main
from cerberank_benchmarks.pieces.first_stage import VECTORS, joined
from cerberank_benchmarks.settings import DataNeededError
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question


def question(name: str, texts: dict[str, int]) -> Question:
    """One with these candidates and labels."""
    candidates = tuple(LabelledCandidate(Candidate(text=text), label) for text, label in texts.items())
    return Question(id=name, text=f"what is {name} ?", candidates=candidates)


def test_questions_get_each_other_s_candidates() -> None:
    """All distinct, the own ones first with their labels, the others with 0; the same for the same seed."""
    questions = [question("a", {"one": 0, "two": 1}), question("b", {"two": 0, "three": 1, "four": 1})]
    made = list(joined(questions, 4, seed=3))
    assert [len(set(each.candidates)) for each in made] == [4, 4]
    assert made[0].candidates[:2] == ("one", "two")
    assert made[0].labels == (0, 1, 0, 0)
    assert made[1].labels == (0, 1, 1, 0)
    assert made == list(joined(questions, 4, seed=3))
    with pytest.raises(DataNeededError, match="too few texts for 5"):
        list(joined(questions, 5, seed=3))


def test_every_system_is_measured(tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored, cached and computed vectors give answers of the same accuracy; a row for each system."""
    monkeypatch.setattr("cerberank_benchmarks.pieces.first_stage.default_checkpoint", lambda: tiny_checkpoint)
    attached(read_checkpoint(tiny_checkpoint), tmp_path / "first")
    lines = [
        {"question": f"{own} ?", "candidates": [{"text": f"{own} {n} metres", "label": n % 2} for n in range(5)]}
        for own in ("paris", "tower")
    ]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--data", f"jsonl:{tmp_path / 'data.jsonl'}", "--checkpoint", str(tmp_path / "first")]
    assert main(["first-stage", *options, "--candidates", "8", "--out", str(tmp_path / "out")]) == 0
    rows = json.loads((tmp_path / "out" / "first-stage.json").read_text())["rows"]
    assert len(rows) == 2 + len(VECTORS)
    by_name = {row["system"]: row for row in rows}
    assert len({by_name[name]["MAP, %"] for name in VECTORS}) == 1
    assert {by_name[name]["beyond stage 0"] for name in VECTORS} == {4}
