"""The papers' presets: each fits its command, and gives the numbers that the papers print; one of each command runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.program import program

from cerberank_models.commands.values import arguments_of
from cerberank_papers.commands import pairwise, pretrain
from cerberank_training.commands.presets import options_from_recipe, presets, read_preset, student_settings
from cerberank_training.commands.train import teach
from cerberank_training.learning.settings import TeacherConfig, TeachOptions

COMMANDS = {"teach": teach, "pretrain": pretrain, "pairwise": pairwise}
NEEDED = {
    "teach": ("--base", "b", "--train", "asnq:t", "--dev", "asnq:d", "--out", "nowhere"),
    "pretrain": ("--base", "b", "--documents", "text:t", "--dev", "text:d", "--out", "nowhere"),
    "pairwise": ("--base", "b", "--train", "trec:t", "--dev", "trec:d", "--out", "nowhere"),
}
PAIRS = {
    **{"asnq": 23_662_238, "wikiqa": 8_672},
    **{"asnq of the hub": 20_377_568, "wikiqa, all": 20_360, "newsas2": 1_840_533},
}
"""Pairs of training sets: CERBERUS table 1, then SSP table 2."""


def options(name: str, *words: str) -> Any:
    """The options of a call with the preset."""
    verb = read_preset(name).verb
    call = [*NEEDED[verb], "--recipe", name, *words]
    return arguments_of(COMMANDS[verb], call, config=options_from_recipe(verb))["options"]


def teacher(name: str, pairs: int = PAIRS["asnq"]) -> TeacherConfig:
    """The run of `train teach` on so many pairs."""
    chosen: TeachOptions = options(name)
    return chosen.training.resolved(pairs)


@pytest.mark.parametrize("name", [name for name in presets() if "/" in name])
def test_a_preset_fits_its_command_and_names_its_sources(name: str) -> None:
    """Every value is one that the command takes, and reaches it; every value has a source."""
    preset = read_preset(name)
    ours = presets()[preset.recipe].settings if preset.recipe else {}
    assert all(setting.source for option, setting in preset.settings.items() if ours.get(option) != setting)
    match preset.verb:
        case "distil":
            assert student_settings(name).examples.sampling == "pairs"
            assert student_settings(name).shape.truncation == "longest_first"
            assert preset.values["dev_questions"] == "all"
        case "teach":
            assert (options(name).dev_questions, options(name).examples.sampling) == ("all", "pairs")
            teacher(name)
        case "pretrain":
            assert options(name).objective == name.rpartition("-")[2]
        case "pairwise":
            named = () if "system" in preset.settings else ("--system", "twin")
            assert (options(name, *named).select, options(name, *named).training.clip) == ("p@20", 0)


@pytest.mark.parametrize(
    ("name", "pairs", "steps", "evaluations"),
    [
        ("tanda/adapt-roberta", "wikiqa", 116, 2),
        ("ssp/fine-tune-wikiqa-roberta", "wikiqa, all", 19_088, 30),
        ("ssp/fine-tune-asnq-roberta", "asnq of the hub", 59_700, 12),
        ("ssp/fine-tune-asnq-electra", "asnq of the hub", 119_400, 12),
        ("ssp/no-context-newsas2-roberta", "newsas2", 57_517, 8),
        ("ssp/fine-tune-newsas2-electra", "newsas2", 115_034, 8),
    ],
)
def test_epochs_of_pairs_are_steps(name: str, pairs: str, steps: int, evaluations: int) -> None:
    """The papers give passes over the pairs and evaluations as a share of the run."""
    config = teacher(name, PAIRS[pairs])
    assert (config.steps, config.evaluate_every) == (steps, steps // evaluations)


def test_a_call_changes_a_preset(tmp_path: Path) -> None:
    """Options that are given count, steps instead of epochs; a file changes a preset for any command."""
    assert options("tanda/adapt-bert", "--learning-rate", "3e-5").training.learning_rate == 3e-5
    changed: TeachOptions = options("tanda/adapt-bert", "--steps", "9")
    assert (changed.training.steps, changed.training.epochs) == (9, None)
    (tmp_path / "mine.toml").write_text(
        'from = "tanda/adapt-bert"\nepochs = { value = 3, source = "ours" }\nmax-length = 64\n'
    )
    mine: TeachOptions = options(str(tmp_path / "mine.toml"))
    assert (mine.training.epochs, mine.training.max_length, mine.training.learning_rate) == (3, 64, 1e-6)
    assert read_preset(str(tmp_path / "mine.toml")).name == "mine.toml (from tanda/adapt-bert: epochs 3, max_length 64)"
    with pytest.raises(ValueError, match="--recipe mini is for `train distil`, not for `train teach`"):
        arguments_of(teach, [*NEEDED["teach"], "--recipe", "mini"], config=options_from_recipe("teach"))
    with pytest.raises(ValueError, match="is for `train teach`, not for `train distil`"):
        student_settings("tanda/adapt-bert")


def test_every_value_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    """A preset shows every value's source, a recipe all settings; the list names each with its command."""
    assert program("train recipes")(["tanda/transfer-bert"]) == 0
    shown = capsys.readouterr().out
    for option, setting in read_preset("tanda/transfer-bert").settings.items():
        (line,) = [each for each in shown.splitlines() if each.startswith(f"{option} = ")]
        assert json.dumps(setting.value) in line
        assert line.endswith(setting.source)
    assert program("train recipes")(["cerberus/wikiqa"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"tau = [3.0]", "lambda = [1.0]", 'exits_learn = "labels"', 'windows = "off"'} <= set(lines)
    assert not any(line.startswith("negatives = ") for line in lines)  # of groups, and the preset draws pairs
    assert program("train recipes")([]) == 0
    names = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert ["/" in name for name, _ in names] == sorted("/" in name for name, _ in names)
    assert {(name, preset.verb) for name, preset in presets().items()} == set(map(tuple, names))
