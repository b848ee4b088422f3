from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.calibrations import calibrated, held_out
from tests.program import program

from cerberank_models.checkpoint.folder import read_checkpoint, write_checkpoint
from cerberank_models.ranker import Ranker

main = program("checkpoint calibrate")
evaluate = program("evaluate")
export = program("export")


@pytest.fixture
def data(tiny_checkpoint: Path, tmp_path: Path) -> str:
    """Two hundred questions, whose candidates are right with a probability that rises with the network's score."""
    return held_out(Ranker.load(tiny_checkpoint, precision="fp32"), tmp_path / "held-out.jsonl", 200)


def test_a_calibrated_checkpoint_differs_in_its_probabilities_alone(
    tiny_checkpoint: Path, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same network and order; the card says on what it was fitted, and has a smaller error."""
    out, common = tmp_path / "out", ["--data", data, "--precision", "fp32"]
    assert main([str(tiny_checkpoint), *common, "--out", str(out)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"{out}: calibrated on 200 questions, 50 % of them without an answer")
    old, new = read_checkpoint(tiny_checkpoint), read_checkpoint(out)
    changed = {name for name, digest in new.manifest.files.items() if old.manifest.files.get(name) != digest}
    assert changed == {"calibration.json", "README.md"}
    assert new.manifest.version == "1-calibrated"
    card = (out / "README.md").read_text()
    assert "200 questions" in card
    assert "jsonl:held-out.jsonl" in card
    assert str(tmp_path) not in card + (out / "calibration.json").read_text()

    first, second = Ranker.load(tiny_checkpoint, precision="fp32"), Ranker.load(out, precision="fp32")
    texts = ["built in paris", "bees make honey", "it was tall"]
    before, after = (ranker.rank("how tall is it ?", texts, drop_ratio=0) for ranker in (first, second))
    assert [result.index for result in before] == [result.index for result in after]
    assert [result.score for result in before] == [result.raw_score for result in after]
    assert before.answerable is None
    assert after.answerable is not None
    assert 0.0 < after.answerable < 1.0

    errors = [float(each) for each in re.findall(r"calibration error (\d\.\d+), Brier", card)]
    assert len(errors) == 2
    assert errors[1] < errors[0]


def test_other_forms_of_the_network_stay_calibrated_and_other_networks_do_not(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """An export keeps the file and the card's section; a checkpoint without the file loses the section, too."""
    source = calibrated(tiny_checkpoint, tmp_path / "calibrated", card="# a\n\n## Calibrated scores\n\nb\n")
    assert export([str(source.path), str(tmp_path / "out"), "--forms", "none"]) == 0
    exported = read_checkpoint(tmp_path / "out")
    assert exported.calibration == source.calibration
    assert "## Calibrated scores" in (exported.path / "README.md").read_text()
    weights = {"model.safetensors": source.path / "model.safetensors"}
    write_checkpoint(
        tmp_path / "other",
        config=source.config,
        tokenizer=(source.path / "tokenizer.json").read_bytes(),
        card=(source.path / "README.md").read_text(),
        version="3",
        source="tests",
        files=weights,
        golden=source.golden,
    )
    assert "Calibrated" not in (tmp_path / "other" / "README.md").read_text()


def test_calibrating_again_replaces_the_old_one(tiny_checkpoint: Path, tmp_path: Path, data: str) -> None:
    """One section in the card; copies of questions count once; too few are refused and leave nothing."""
    copy = tmp_path / "copy.jsonl"
    copy.write_text((tmp_path / "held-out.jsonl").read_text())
    common, twice = ["--data", data, "--precision", "fp32"], ["--data", f"jsonl:{copy}"]
    assert main([str(tiny_checkpoint), *common, *twice, "--out", str(tmp_path / "a")]) == 0
    first = read_checkpoint(tmp_path / "a").calibration
    assert first.data.questions == len({json.loads(line)["question"] for line in copy.read_text().splitlines()})
    assert main([str(tmp_path / "a"), *common, "--sample", "150", "--version", "3", "--out", str(tmp_path / "b")]) == 0
    second = read_checkpoint(tmp_path / "b")
    assert (second.path / "README.md").read_text().count("## Calibrated scores\n") == 1
    assert second.calibration.data.questions == 150
    assert main([str(tiny_checkpoint), *common, "--sample", "50", "--out", str(tmp_path / "c")]) == 1
    assert not (tmp_path / "c").exists()


def test_an_earlier_option_is_answered_with_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    """`--unanswered` belongs to `train` alone, where it takes a word."""
    assert main(["checkpoint", "--data", "jsonl:x", "--out", "out", "--unanswered", "0.3"]) == 2
    assert "--unanswered was renamed to --unanswered-share" in capsys.readouterr().err
