"""Settings of a student: a call changes a recipe, a file changes another, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from cyclopts import CycloptsError
from tests.program import program

from cerberank_models.commands.values import arguments_of, error_message
from cerberank_models.output import UsageError
from cerberank_training.commands.presets import options_from_recipe, read_preset, student_settings
from cerberank_training.commands.train import distil
from cerberank_training.data.sampling import ExampleOptions
from cerberank_training.learning.settings import StudentSettings

ELECTRA = "electra-base-b11-3h1"


def changed(*words: str, recipe: str = ELECTRA, sampled: bool = False) -> StudentSettings:
    data = "--groups" if sampled else "--train"
    call = ["--recipe", recipe, "--base", "b", data, "jsonl:t", "--dev", "jsonl:d", "--out", "nowhere", *words]
    try:
        settings: StudentSettings = arguments_of(distil, call, config=options_from_recipe("distil"))["options"].settings
    except CycloptsError as error:
        raise UsageError(error_message(error)) from error
    settings.check(sampled=sampled)
    return settings


def test_options_with_names_of_their_own_reach_their_settings() -> None:
    """Changes of heads and exits; lists have commas; a switch has both directions; all others stay the recipe's."""
    settings = changed(
        "--lambda", "2,0,1", "--exits-learn", "heads", "--exits", "1,9", "--train-token-embeddings=false"
    )
    assert (settings.objective.weights, settings.objective.exits) == ((2.0, 0.0, 1.0), "heads")
    assert settings.shape.exits == (1, 9)
    assert not settings.train.train_token_embeddings
    assert settings.train.steps == student_settings(ELECTRA).train.steps == 20_000
    assert changed() == student_settings(ELECTRA)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--steps", ["0", "2.5", "x"]),
        ("--seed", ["-1"]),
        ("--max-length", ["7"]),
        ("--learning-rate", ["0", "nan", "inf", "-1"]),
        ("--warmup", ["-0.1", "nan", "inf"]),
        ("--final-only", ["-0.1", "1.1", "nan"]),
        ("--alpha", ["-0.1", "1.1", "nan"]),
        ("--tau", ["0", "nan", "inf"]),
        ("--lambda", ["-0.1", "inf"]),
        ("--dropout", ["1", "-0.1", "nan"]),
        ("--context", ["4"]),
    ],
)
def test_a_value_out_of_range_names_its_option(option: str, values: list[str]) -> None:
    """One option of each kind of range, on either side, and values that are not numbers."""
    for value in values:
        with pytest.raises(UsageError, match=f"for {option}"):
            changed(f"{option}={value}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--alpha", "0.1,0.5"], "--alpha has 2 numbers; it takes one, or one for each of 3 heads"),
        (["--exits", "4,2"], "--exits are .4, 2."),
        (["--exits", "12"], "at most 11 .--body-layers."),
        (
            ["--truncation", "longest_first", "--question-length", "9"],
            "--question-length has no effect where a recipe cuts the longest texts",
        ),
        (["--max-length", "50"], "--question-length must be at most --max-length - 7, which is 43"),
        (["--sampling", "pairs"], "--sampling pairs needs --examples-per-step"),
        (["--examples-per-step", "8", "--tokens-per-step", "99"], "two sizes of a step"),
        (
            ["--sampling", "pairs", "--examples-per-step", "8", "--negatives", "3"],
            "--negatives is for --sampling grouped",
        ),
        (
            ["--sampling", "pairs", "--examples-per-step", "8", "--listwise-weight", "1"],
            "--sampling pairs .*--listwise-weight 0",
        ),
        (
            [
                "--sampling",
                "pairs",
                "--examples-per-step",
                "8",
                "--listwise-weight",
                "0",
                "--teacher-loss",
                "margin-mse",
                *("--teacher", "scores"),
            ],
            "compares",
        ),
        (["--teacher-loss", "mse"], "--teacher-loss is for a run with --teacher"),
        (["--heads", "0"], "--heads is 0 and --exits are none"),
        (["--unanswered", "keep"], "--unanswered is for --sampling pairs"),
        (["--strategy", "hydra"], "--strategy hydra follows from --heads and the number of --teacher"),
        (["--own", "3"], "^--own was renamed to --negatives"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(words: list[str], message: str) -> None:
    """The message names the option to change."""
    with pytest.raises(ValueError, match=message):
        changed(*words)


def test_sampled_groups_refuse_options_of_sampling() -> None:
    """They would have no effect."""
    for words in (["--hard-pool", "3"], ["--sampling", "grouped"]):
        with pytest.raises(ValueError, match=rf"^{words[0]} is for --train"):
            changed(*words, sampled=True)


def test_sampling_and_embeddings() -> None:
    """Pairs with and without unanswered questions; word embeddings learn; negatives change one by one."""
    pairs = ("--sampling", "pairs", "--examples-per-step", "64")
    assert changed(*pairs, "--unanswered", "keep").examples == ExampleOptions(sampling="pairs", unanswered="keep")
    assert changed(*pairs).examples == ExampleOptions(sampling="pairs")
    four = ExampleOptions(negatives=4, hard_negatives=0, other_negatives=0)
    assert changed("--negatives", "4").examples == four
    assert changed("--train-token-embeddings", recipe="tiny").train.train_token_embeddings
    assert changed("--gradient-checkpointing").train.gradient_checkpointing


def test_the_longest_text_may_be_cut_instead_of_the_candidate() -> None:
    """Then no question is too long for a pair, because its length is not bounded by itself."""
    encoding = changed("--truncation", "longest_first", "--max-length", "50").shape.encoding
    assert (encoding.truncation, encoding.max_length, encoding.question_length) == ("longest_first", 50, 43)
    assert changed().shape.encoding.truncation == "last_first"


def test_a_learning_rate_alone_keeps_the_recipes_ratio() -> None:
    """The paper's one rate stays one; the mini's ratio of 5 stays; a fresh rate that is given is taken as it is."""
    for recipe, words, rates in (
        ("electra-base-b11-3h1", ["--learning-rate", "1e-6"], (1e-6, 1e-6)),
        ("mini", ["--learning-rate", "1e-5"], (1e-5, 5e-5)),
        ("mini", ["--learning-rate", "1e-5", "--fresh-learning-rate", "3e-5"], (1e-5, 3e-5)),
        ("mini", ["--fresh-learning-rate", "3e-5"], (4e-5, 3e-5)),
    ):
        train = changed(*words, recipe=recipe).train
        assert (train.learning_rate, train.fresh_learning_rate) == pytest.approx(rates, rel=1e-12)


FILE = """
from = "electra-base-b11-3h1"
learning-rate = 2e-5
exits = [2, 4]
alpha = [0.1, 0.5, 1]
lambda = 2
exits_learn = "heads"
train_token_embeddings = false
sampling = "pairs"
examples_per_step = 64
listwise_weight = 1.0
"""


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_file_changes_a_recipe_and_options_change_the_file(tmp_path: Path) -> None:
    """Every kind of value; the title says where it is from and what it changes; settings fit in the end."""
    file = written(tmp_path, FILE)
    title = read_preset(file).name
    assert title.startswith("mine.toml (from electra-base-b11-3h1: learning_rate 2e-05, exits 2,4, alpha 0.1,0.5,1,")
    settings = student_settings(file)
    assert (settings.train.learning_rate, settings.train.fresh_learning_rate) == pytest.approx((2e-5, 2e-5))
    assert settings.shape.exits == (2, 4)
    assert (settings.objective.alpha, settings.objective.weights) == ((0.1, 0.5, 1.0), (2.0,))
    assert not settings.train.train_token_embeddings
    assert settings.examples == ExampleOptions(sampling="pairs")
    with pytest.raises(ValueError, match="listwise loss"):
        changed(recipe=file)
    final = changed("--listwise-weight", "0", "--learning-rate", "1e-6", "--steps", "9", recipe=file)
    assert (final.train.learning_rate, final.train.steps, final.objective.listwise_weight) == (1e-6, 9, 0.0)
    assert final.shape == settings.shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('from = "mini"\nlearning_rat = 1', "mine.toml: Unknown option: --learning-rat. Did you mean --learning-rate?"),
        ('from = "mini-hrad"', "mine.toml: from 'mini-hrad' is unknown, perhaps 'mini-hard'"),
        ("steps = 3", "mine.toml: `from` is missing"),
        ('from = "mini"\nsteps = 2.5', "mine.toml: Invalid value for --steps: takes a whole number, not '2.5'"),
        ('from = "mini"\ntrain_token_embeddings = 7', "mine.toml: Invalid value for --train-token-embeddings"),
        ("from = mini", "mine.toml: Invalid value"),
        ('from = "mini"\nunanswered = "keep"', "mine.toml: --unanswered is for --sampling pairs"),
    ],
)
def test_what_a_file_cannot_say_is_refused_with_its_key(text: str, message: str, tmp_path: Path) -> None:
    """One line that names the file and the key."""
    with pytest.raises(ValueError, match=r"^--recipe ") as refused:
        student_settings(written(tmp_path, text))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unknown_recipes_are_refused() -> None:
    """With the nearest name, or the missing file."""
    with pytest.raises(ValueError, match="--recipe 'tinny' is unknown, perhaps 'tiny'; `cerberank train recipes`"):
        student_settings("tinny")
    with pytest.raises(ValueError, match=r"--recipe nowhere.toml: No such file"):
        student_settings("nowhere.toml")


def test_a_key_of_recipes_is_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file may have it; the command line is told where it belongs."""
    (tmp_path / "mine.toml").write_text('from = "mini"\nhard_pool = 3\nlambda = [1, 0, 1]\n')
    settings = student_settings(str(tmp_path / "mine.toml"))
    assert (settings.examples.hard_pool, settings.objective.weights) == (3, (1.0, 0.0, 1.0))
    assert program("train distil")(["--recipe", "mini", "--hard-pool=3"]) == 2
    assert "--hard-pool is a key of recipes and no option" in capsys.readouterr().err
