"""The mean of each weight, one head counted for all, and networks that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.program import program
from tests.tiny import ONE_STAGE, random_checkpoint

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.config import TunedSchedule
from cerberank_models.network.ranking_network import RankingNetwork
from cerberank_training.commands.average import average_rankers
from cerberank_training.learning.settings import StudentShape
from cerberank_training.learning.student_network import build_student
from cerberank_training.runs.base import open_base
from cerberank_training.runs.summary import training_data

main = program("checkpoint average")


def one_headed(base: Path, exits: tuple[int, ...]) -> RankingNetwork:
    """The body of `base` with its first head alone and every weight increased by one."""
    shape = StudentShape(name="one", body_layers=3, heads=1, exits=exits, max_length=48, question_length=16)
    ranker = build_student(shape, open_base(str(base)), seed=3, dropout=0.0).ranker
    ranker.load_state_dict({name: tensor + 1.0 for name, tensor in ranker.state_dict().items()})
    return ranker


def test_every_weight_is_the_mean_of_those_that_have_it(tiny_checkpoint: Path) -> None:
    """Body and heads are averaged with the other network's only head; an exit of one network stays."""
    ours = load_ranker(read_checkpoint(tiny_checkpoint))
    known, *rest = ours.config.exits
    before = ours.state_dict()
    after = average_rankers([ours, one_headed(tiny_checkpoint, (known.after,))]).state_dict()
    for name in (
        "embeddings.tokens.weight",
        "body.1.up.weight",
        "heads.0.classifier.dense.weight",
        "exits.0.output.weight",
    ):
        torch.testing.assert_close(after[name], before[name] + 0.5)
    expected = (before["heads.2.layers.0.up.weight"] + before["heads.0.layers.0.up.weight"] + 1.0) / 2
    torch.testing.assert_close(after["heads.2.layers.0.up.weight"], expected)
    assert rest
    torch.testing.assert_close(after["exits.1.output.weight"], before["exits.1.output.weight"])


def test_schedules_of_other_weights_are_left_behind(tiny_checkpoint: Path) -> None:
    """The mean has no drop schedule, no tuned one and no minimum of the first checkpoint, which keeps its own."""
    ours = load_ranker(read_checkpoint(tiny_checkpoint))
    tuned = TunedSchedule(schedule=(0.3,) * len(ours.config.exits), cost=0.8, metrics={"map_loss": 0.1})
    ours.config = ours.config.model_copy(
        update={"drop_schedule": tuned.schedule, "drop_minimum": 9, "tuned_schedules": (tuned,)}
    )
    config = average_rankers([ours, ours]).config
    assert (config.drop_schedule, config.drop_minimum, config.tuned_schedules) == ((), 1, ())
    assert ours.config.drop_minimum == 9


def test_strangers_are_refused(tiny_checkpoint: Path) -> None:
    """Networks of another depth, or with two heads instead of three, are refused."""
    ours = load_ranker(read_checkpoint(tiny_checkpoint))
    shape = StudentShape(name="two", body_layers=3, heads=2, max_length=48, question_length=16)
    two = build_student(shape, open_base(str(tiny_checkpoint)), seed=1, dropout=0.0).ranker
    with pytest.raises(ValueError, match="checkpoint 2 has 2 heads, not 3 or one"):
        average_rankers([ours, two])
    with pytest.raises(ValueError, match="nothing"):
        average_rankers([])


def test_the_verb_writes_a_checkpoint_to_learn_on_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkpoint has weights, ONNX, the data of all parts and a card that names them. No folder is overwritten."""
    parts = [
        random_checkpoint(tmp_path / version, version=version, seed=seed, precisions=(), **ONE_STAGE)
        for seed, version in enumerate(("1", "2"))
    ]
    data = [{"name": f"jsonl:{name}", "sha256": {name: name}} for name in "abc"]
    for number, path in enumerate(parts):
        revised = path.with_name(f"trained-{number}")
        summary = {"data": data[number], "earlier_data": data[2:]}
        files = {"run.json": json.dumps(summary).encode()}
        revise_checkpoint(read_checkpoint(path), revised, version=str(number + 1), files=files)
        parts[number] = revised
    out = ["--out", str(tmp_path / "mean")]
    assert main([*map(str, parts), "--version", "3", *out]) == 0
    mean = read_checkpoint(tmp_path / "mean")
    assert f"{tmp_path / 'mean'} is random-tiny@3, the mean of 2 checkpoints" in capsys.readouterr().err
    weights = [load_ranker(read_checkpoint(path)).state_dict()["body.0.up.weight"] for path in parts]
    torch.testing.assert_close(load_ranker(mean).state_dict()["body.0.up.weight"], (weights[0] + weights[1]) / 2)
    assert mean.manifest.version == "3"
    assert "random-tiny 1, random-tiny 2" in (mean.path / "README.md").read_text(encoding="utf-8")
    assert mean.precisions == ("fp32",)
    assert training_data(mean.path) == [data[0], data[2], data[1]]
    assert main([str(parts[0]), *out]) == 1
