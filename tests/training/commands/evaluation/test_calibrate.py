from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.calibrations import calibrated
from tests.program import program
from tests.tiny import WORDS

from cerberank_models.checkpoint.folder import read_checkpoint, write_checkpoint
from cerberank_models.ranker import Ranker

main = program("eval calibrate")
evaluate = program("evaluate")
export = program("export")


@pytest.fixture
def data(tiny_checkpoint: Path, tmp_path: Path) -> str:
    """Two hundred questions, whose candidates are right with a probability that rises with the network's score."""
    rng, ranker, lines = random.Random(5), Ranker.load(tiny_checkpoint, precision="fp32"), []
    for number in range(200):
        question = f"{' '.join(rng.sample(WORDS, 3))} ?"
        texts = list(dict.fromkeys(" ".join(rng.sample(WORDS, 4)) for _ in range(5)))
        odds = np.log((raw := ranker.predict([(question, text) for text in texts])) / (1.0 - raw))
        labels = [int(rng.random() < 1.0 / (1.0 + np.exp(-(2.0 * each - 1.0)))) for each in odds]
        rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
        lines.append({"id": str(number), "question": question, "candidates": rows})
    (tmp_path / "held-out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"jsonl:{tmp_path / 'held-out.jsonl'}"


def test_a_calibrated_checkpoint_differs_in_its_probabilities_alone(
    tiny_checkpoint: Path, tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same network and order; the card says on what it was fitted; evaluate measures a smaller error."""
    out, common = tmp_path / "out", ["--data", data, "--precision", "fp32"]
    assert main([str(tiny_checkpoint), *common, "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"{out}: calibrated on 200 questions")
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

    errors = []
    for folder in (tiny_checkpoint, out):
        assert evaluate([*common, "--checkpoint", str(folder), "--json", str(tmp_path / "figures.json")]) == 0
        assert "First scores: calibration error" in capsys.readouterr().out
        errors.append(json.loads((tmp_path / "figures.json").read_text())["first_results"]["ece"])
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
    assert first is not None
    assert first.data.questions == len({json.loads(line)["question"] for line in copy.read_text().splitlines()})
    assert main([str(tmp_path / "a"), *common, "--sample", "150", "--version", "3", "--out", str(tmp_path / "b")]) == 0
    second = read_checkpoint(tmp_path / "b")
    assert (second.path / "README.md").read_text().count("## Calibrated scores\n") == 1
    assert second.calibration is not None
    assert second.calibration.data.questions == 150
    assert main([str(tiny_checkpoint), *common, "--sample", "50", "--out", str(tmp_path / "c")]) == 1
    assert not (tmp_path / "c").exists()


def test_a_calibration_without_figures_is_written_and_says_so(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One question has the only wrong candidate, so that the questions without its fold fit no calibration."""
    ranker, texts = Ranker.load(tiny_checkpoint, precision="fp32"), [f"{a} {b}" for a in WORDS[:6] for b in WORDS[:6]]
    scores = ranker.predict([("how tall ?", text) for text in texts])
    pairs = [(f"{number} ?", [(texts[0], 1), (texts[1], 1)]) for number in range(99)]
    pairs.append(("how tall ?", [(texts[int(scores.argmax())], 1), (texts[int(scores.argmin())], 0)]))
    rows = [{"question": q, "candidates": [{"text": text, "label": label} for text, label in c]} for q, c in pairs]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = ["--data", f"jsonl:{tmp_path / 'a.jsonl'}", "--precision", "fp32"]
    assert main([str(tiny_checkpoint), *data, "--out", str(tmp_path / "out")]) == 0
    assert "no figures by cross-validation" in (tmp_path / "out" / "README.md").read_text()
    assert capsys.readouterr().out.splitlines()[-1] == f"{tmp_path / 'out'}: calibrated on 100 questions"
