"""SR: independent models in sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.program import program
from tests.training.letters import jsonl, questions

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.drop import RatioSchedule
from cerberank_training.evaluation.sources.sequence import sequence_rankings
from cerberank_training.evaluation.variants import Scorer, rank_questions

main = program("evaluate")


def test_the_last_model_ranks_what_the_first_left(tiny_checkpoint: Path) -> None:
    """The same model twice in sequence ranks as the model alone, whatever the first one drops."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    scorer = Scorer.open(checkpoint, kind="onnx", precision="fp32")
    alone = [ranks["final"] for _, ranks in rank_questions(scorer, questions())]
    policies = [RatioSchedule((alpha,)) for alpha in (0.5, 0.0)]
    twice = sequence_rankings([scorer, scorer], questions(), policies)
    for expected, ranked in zip(alone, twice, strict=True):
        assert np.array_equal(ranked.ranks["final"], expected)
        assert np.array_equal(ranked.ranks["drop 0"], expected)
        assert np.array_equal(ranked.ranks["drop 0.5"], expected)


def test_the_verb_reports_models_and_schedules(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows and costs of each model alone and of the sequence, of whole ones too; ratios that do not fit are refused."""
    call = ["--data", jsonl(tmp_path), "--precision", "fp32", *2 * ("--sequence", str(tiny_checkpoint))]
    assert main([*call, "--schedule", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "| model 1 |" in shown
    assert "| drop 0.5 |" in shown
    assert "1.60" in shown  # three of five candidates are left
    assert main([*call, "--schedule", "0.5", "--minimum", "1000"]) == 0
    assert "2.00" in capsys.readouterr().out
    assert main([*call, "--schedule", "0.5,0.5"]) == 1
    assert "2 stages take 1 drop ratios, not 2" in capsys.readouterr().err
