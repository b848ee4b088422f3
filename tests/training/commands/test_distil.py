"""`cerberank train distil`: what it reads, in which order it refuses, training on single pairs, and its last words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.program import program, replaced
from tests.tiny import ENCODING, random_ranker, save_cross_encoder
from tests.training.letters import dev_jsonl, encoder, jsonl, questions

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate
from cerberank_models.windows import Reading
from cerberank_training.data import LabelledCandidate
from cerberank_training.evaluation import dev_figures
from cerberank_training.learning import student_job
from cerberank_training.runs.summary import dev_map


def pairs(folder: Path, *more: str) -> list[str]:
    """The arguments of a run of four steps of 8 pairs; the letters have 25, one of five a positive."""
    if not (folder / "base").exists():
        save_cross_encoder("bert", folder / "base")
    data = jsonl(folder)
    words = [
        *("--recipe", "tiny", "--base", str(folder / "base"), "--train", data, "--exits", ""),
        *("--dev", dev_jsonl(folder)),
        *("--sampling", "pairs", "--examples-per-step", "8", "--steps", "4"),
        *("--learning-rate", "5e-3", "--evaluate-every", "2", "--forms", "none", "--out", str(folder / "run")),
    ]
    return replaced(words, *more)


def test_a_student_learns_from_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every step has its eight pairs, and the card says how they were drawn."""
    assert program("train distil")(pairs(tmp_path)) == 0
    run = tmp_path / "run"
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert {row["pairs"] for row in log if "pairs" in row} == {8}
    assert all({"dev_map/head_1", "dev_map/head_3"} <= set(row) for row in log if "dev_map" in row)
    said = capsys.readouterr()
    assert f"{run / 'checkpoint'}: run, dev MAP " in said.out  # named after its folder, not after the recipe
    assert "5 of 5 questions of --dev are trained on too" in said.err
    assert "the first step has " in said.err
    assert " and 8 pairs, " in said.err
    checkpoint = read_checkpoint(run / "checkpoint")
    best = max(row["dev_map"] for row in log if "dev_map" in row and row["step"])
    assert dev_map(checkpoint.manifest.metrics) == pytest.approx(best)
    assert not list((run / "checkpoint").glob("onnx/*"))
    card = (run / "checkpoint" / "README.md").read_text()
    settings = json.loads(card.split("```json")[1].split("```")[0])
    assert settings["examples"]["sampling"] == "pairs"
    assert settings["train"]["fresh_learning_rate"] == pytest.approx(4e-4 / 6e-5 * 5e-3)


def test_long_texts_of_dev_are_cut_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words behind the cut change no rank, and otherwise they do; the checkpoint and the record state the reading.

    After each evaluation its memory is returned to a GPU.
    """
    returned: list[str] = []
    monkeypatch.setattr(student_job, "return_unused_memory", returned.append)

    def ranks(words: int, windows: Reading) -> list[list[int]]:
        long = [
            replace(
                each, candidates=tuple(LabelledCandidate(text_of(row, words), row.label) for row in each.candidates)
            )
            for each in questions()
        ]
        reading = encoder(ENCODING.model_copy(update={"windows": windows}))
        return [each["final"].tolist() for _, each in student_job.network_ranks(reading, "cpu")(ranker, long)]

    def text_of(row: LabelledCandidate, words: int) -> Candidate:
        return Candidate(text=f"{row.candidate.text} {'tower ' * words}")

    ranker = random_ranker()
    assert ranks(60, "off") == ranks(200, "off") != ranks(200, "best")
    assert returned == ["cpu"] * 3

    options = pairs(tmp_path, "--windows", "off")
    assert program("train distil")(options) == 0
    assert read_checkpoint(tmp_path / "run" / "checkpoint").config.encoding.windows == "off"
    assert program("train distil")(replaced(options, "--windows", "best")) == 1
    assert "was begun with settings.shape.windows 'off', not 'best'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--examples-per-step", "4", "--accumulate", "3"],
        ["--strategy", "kd_rr", "--teacher", "nowhere"],
        ["--teacher", "tests/nowhere"],
        ["--name", "no name"],
    ],
)
def test_nothing_is_loaded_for_a_bad_value(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exit code, one line that names the setting, no base opened, no folder made."""
    monkeypatch.setattr(student_job, "build_student", lambda *_, **__: pytest.fail("a base was loaded"))
    monkeypatch.setattr(dev_figures, "open_ranking_data", lambda *_, **__: pytest.fail("data were read"))
    needed = ["--recipe", "tiny", "--base", "b", "--train", "jsonl:x", "--dev", "jsonl:x"]
    code = program("train distil")(replaced([*needed, "--out", tmp_path / "out"], *options))
    message = capsys.readouterr().err
    assert code == (2 if "--help" in message else 1)
    assert message.count("\n") == 1
    assert options[0].lstrip("-") in message
    assert not (tmp_path / "out").exists()


def test_a_teacher_is_a_model_or_its_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model is scored into the run's folder, and gives the run that `data score` gives; other folders are refused."""
    options = pairs(tmp_path)
    base = options[options.index("--base") + 1]
    TeacherInput(max_length=32).write(Path(base))
    assert program("train distil")([*options, "--teacher", base]) == 0
    (scores,) = (tmp_path / "run" / "scores").iterdir()
    assert f"--teacher {base} is a model: its scores of" in capsys.readouterr().err
    cache = [str(tmp_path / "cache"), "--teacher", base, "--data", jsonl(tmp_path)]
    assert program("data score")(cache) == 0
    for teacher in (tmp_path / "cache", scores):
        assert program("train distil")([*options, "--teacher", str(teacher)]) == 0
        assert "is finished" in capsys.readouterr().err
    assert program("train distil")([*options, "--teacher", str(tmp_path)]) == 1
    assert (
        "is neither a score cache (a folder that `cerberank data score` wrote) nor a model" in capsys.readouterr().err
    )


def test_the_file_of_a_recipe_is_in_the_card(tmp_path: Path) -> None:
    """The card names the changes of the file and those of the command line; weights alone are written."""
    (tmp_path / "mine.toml").write_text('from = "tiny"\nsteps = 7\nclip = 0.5\nevaluate_every = 2\n')
    options = pairs(tmp_path, "--recipe", str(tmp_path / "mine.toml"), "--steps", "2")
    del options[options.index("--forms") : options.index("--forms") + 2]
    assert program("train distil")([*options, "--forms", "none"]) == 0
    card = (tmp_path / "run" / "checkpoint" / "README.md").read_text()
    assert "mine.toml (from tiny: steps 7, clip 0.5, evaluate_every 2)" in card
    settings = json.loads(card.split("```json")[1].split("```")[0])
    assert (settings["steps"], settings["train"]["clip"]) == (2, 0.5)
    assert not list((tmp_path / "run" / "checkpoint").glob("onnx/*"))
