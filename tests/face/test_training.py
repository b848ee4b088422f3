"""The commands of training as functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pandas as pd
import pytest
from cerberank import DataError, evaluate, train, training
from tests.tiny import save_cross_encoder
from tests.training.letters import questions
from tools.python_api import MODULE, training_module

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint

ROWS = [
    {"question": question.text, "text": row.candidate.text, "label": row.label}
    for question in questions()
    for row in question.candidates
]
DEV = ROWS[::-1]


@pytest.fixture(scope="module")
def folder(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with `base` and the finished run `run`; read-only for tests."""

    def make(folder: Path) -> None:
        folder.mkdir()
        save_cross_encoder("bert", folder / "base")
        small(folder, train=pd.DataFrame(ROWS), dev=DEV, out=folder / "run")

    return made_once("trained_in_python", make)


def small(folder: Path, **changes: Any) -> Any:
    """A call of `train` with two steps and an evaluation after each."""
    settings: dict[str, Any] = {"recipe": "tiny", "base": str(folder / "base"), "train": ROWS, "dev": DEV}
    settings |= {"steps": 2, "evaluate_every": 1, "forms": (), "negatives": 2, "dropout": 0.1}
    return train(**settings | changes)


def test_the_module_is_up_to_date() -> None:
    """`cerberank.training` is the output of `python -m tools.reference`."""
    assert MODULE.read_text() == training_module(), "run python -m tools.reference"


def test_a_run_on_rows_continues_with_the_same_rows_alone(folder: Path, tmp_path: Path) -> None:
    """Its record binds them by their content, whatever holds them."""
    out = tmp_path / "run"
    small(folder, out=out, train=datasets.Dataset.from_list(ROWS))
    (out / "checkpoint").rename(tmp_path / "away")  # as if the call had been killed before its export
    assert small(folder, out=out).steps == 2
    with pytest.raises(ValueError, match="data"):
        small(folder, out=out, train=ROWS[:-1])
    record = json.loads((out / "record.json").read_text())
    assert len(record["calls"]) == 2
    assert list(record["bound"]["data"]["sha256"]) == ["train.jsonl"]


def test_a_result_has_the_history_of_its_run(folder: Path) -> None:
    """A row for each step and evaluation, the figures of the best step, and whether patience ended the run."""
    trained = small(folder, train=pd.DataFrame(ROWS), out=folder / "run")  # which is finished
    history = pd.DataFrame(trained.history)
    assert history.loss.dropna().size == trained.steps == 2
    best = history[history.step.eq(trained.best_step)].dev_map.dropna()
    assert best.tolist() == pytest.approx([trained.dev], abs=1e-3)
    assert set(trained.figures) == {"final", "exit 1", "head 1", "head 2", "head 3"}
    assert trained.figures["head 2"] == history["dev_map/head_2"][best.index[0]]
    assert not trained.stopped_early


def test_a_run_that_patience_ended_says_so(folder: Path, tmp_path: Path) -> None:
    trained = small(folder, out=tmp_path / "run", steps=9, patience=1, learning_rate=1e-9)
    assert trained.stopped_early
    assert trained.steps < 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, 'Invalid value "0" for steps'),
        ({"learning_rate": "fast"}, "Invalid value for learning_rate"),
        ({"stages": "join"}, 'Did you mean "joint"'),
        ({"tau": [1, 2]}, "tau has 2 numbers"),
        ({"examples_per_step": 2, "tokens_per_step": 9}, "examples_per_step and tokens_per_step are two sizes"),
        ({"forms": "int9"}, "for forms. Takes some of fp32, fp16, int8, or none, not int9"),
        ({"teacher": "scores"}, "scores is neither a score cache"),
        ({"train": pd.DataFrame({"a": [1]})}, r"^train:1: which column is the question"),
        ({"dev": [*ROWS, {"question": "q", "text": "a", "label": "x"}]}, r"^dev:26: "),
    ],
    ids=str,
)
def test_messages_name_arguments_and_a_string_is_one_value(
    folder: Path, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        small(folder, out=tmp_path / "run", **changes)
    assert "--" not in re.sub("`.*`", "", str(raised.value))


def test_an_argument_that_is_none_has_the_default(folder: Path) -> None:
    with pytest.raises(TypeError, match="stepz"):
        small(folder, out=folder / "run", stepz=3)
    assert small(folder, out=folder / "run", device=None, train=pd.DataFrame(ROWS)).steps == 2


def test_data_prepared_measured_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results instead of printed lines alone, for commands with positions, repeated options and files."""
    river = {"question": "where does the river rise ?", "text": "the river rises in a valley", "label": 1}
    others = [{"question": "which ?", "text": f"the river has {number} bridges", "label": 0} for number in range(3)]
    mined = training.mine(data=[river], corpus=others, out=tmp_path / "mined.jsonl", negatives=2)
    assert (mined.questions, mined.negatives) == (1, 2)
    sampled = training.sample(recipe="mini", train=[ROWS, DEV], questions=4, out=tmp_path / "groups.jsonl")
    assert (sampled.groups, len(sampled.path.read_text().splitlines())) == (4, 4)
    scores = pd.DataFrame([{"question": r["question"], "text": r["text"], "score": r["label"] / 2} for r in ROWS])
    scores.to_json(tmp_path / "given.jsonl", orient="records", lines=True)
    cache = training.score(
        tmp_path / "cache", data=ROWS, scores=tmp_path / "given.jsonl", as_="probability", name="judge"
    )
    assert (cache.pairs, cache.missing_shards) == (25, 0)
    files = [tmp_path / f"{number}.jsonl" for number in range(2)]
    reports = [training.evaluate(data=ROWS, scores=cache.folder, per_question=path) for path in files]
    assert reports[0].map == 100
    assert training.compare(*files, measures=["AP", "RR"]).metrics["AP"].difference == 0
    assert [row.name for row in training.recipes("tiny")] == ["tiny"]
    assert str(tmp_path) in capsys.readouterr().err


def test_evaluate_opens_a_folder_and_tells_the_time(tiny_checkpoint: Path) -> None:
    report = evaluate(tiny_checkpoint, pd.DataFrame(ROWS), measures="nDCG@3")
    assert report["nDCG@3"] <= 100
    assert report.milliseconds == report.speed.milliseconds > 0
    assert (report.speed.questions, report.speed.candidates) == (5, 5)
    with pytest.raises(DataError, match=r"data\.jsonl"):
        evaluate(tiny_checkpoint, [])


def test_evaluate_measures_the_schedules_that_are_served(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The lexical layer alone too."""
    checkpoint = read_checkpoint(tiny_checkpoint)
    by_words = checkpoint.config.model_copy(update={"drop_schedule": (), "lexical_ratio": 0.5})
    revise_checkpoint(checkpoint, tmp_path / "words", version="1", config=by_words)
    assert evaluate(tmp_path / "words", ROWS).served.startswith("drop lexical 0.5")
