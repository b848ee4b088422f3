"""Types of option values (whole numbers, numbers within a range, lists), and the parsing of a command line.

A list of numbers or names is one value, separated by commas (`--exits 2,4`). An option for several paths or data sets
is repeated, once for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NewType

from cyclopts import App, CycloptsError, Group, Parameter, Token, UnknownOptionError
from cyclopts.argument import Argument
from cyclopts.validators import Number

from cerberank_models.checkpoint.renamed import new_name


def _shown(value: Any) -> Any:
    """A default as users would type it. None shows no default, if the help text states it or it cannot be typed."""
    if value is False or value in ((), "", "auto"):
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


DEFAULTS = Parameter(negative=(), show_default=_shown)
"""The settings of all options. `--no-X` and `--empty-X` exist only for options that name them."""


RECIPE_KEYS = Group("Keys of recipes")
RECIPE_KEY = Parameter(group=RECIPE_KEYS, show=False)
"""The parameter of a setting that a recipe or a call from Python may give. The command line refuses it."""


def is_recipe_key(argument: Argument) -> bool:
    """True for a setting that is a key of recipes and no option."""
    return argument.parameter.group in (RECIPE_KEYS, (RECIPE_KEYS,))


def listed(kind: Callable[[str], Any], example: str, *, within: Number | None = None) -> Parameter:
    """The parameter of a tuple whose items are separated by commas. `none` is an empty tuple."""

    def convert(type_: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
        try:
            return tuple(kind(part) for token in tokens for part in token.value.split(",") if part not in ("", "none"))
        except ValueError:
            words = ",".join(token.value for token in tokens)
            raise ValueError(f"takes values with commas between them, such as {example}, not {words!r}") from None

    return Parameter(converter=convert, n_tokens=1, validator=within)


def _integer(type_: Any, tokens: Sequence[Token]) -> int:
    try:  # cyclopts would round 2.5 to 2
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"takes a whole number, not {tokens[0].value!r}") from None


def at_least(least: int) -> Parameter:
    """The parameter of a whole number of at least `least`."""
    return Parameter(converter=_integer, n_tokens=1, validator=Number(gte=least))


def _interval(type_: Any, tokens: Sequence[Token]) -> float:
    """A whole number of steps, or a share of all steps below 1."""
    number = float(tokens[0].value)
    if number < 1:
        return number
    if number != int(number):
        raise ValueError(f"takes a whole number of steps, or a share below 1, not {tokens[0].value!r}")
    return int(number)


Whole = Annotated[int, at_least(0)]
Count = Annotated[int, at_least(1)]
Positive = Annotated[float, Parameter(validator=Number(gt=0, lt=math.inf))]
NotNegative = Annotated[float, Parameter(validator=Number(gte=0, lt=math.inf))]
Share = Annotated[float, Parameter(validator=Number(gte=0, lte=1))]
Dropped = Annotated[float, Parameter(validator=Number(gte=0, lt=1))]
Percent = Annotated[float, Parameter(validator=Number(gte=0, lte=100))]
Interval = Annotated[float, Parameter(converter=_interval, n_tokens=1, validator=Number(gt=0, lt=math.inf))]
"""A whole number of steps, or a share of them below 1."""
Integers = Annotated[tuple[int, ...], listed(int, "2,4")]
Names = Annotated[tuple[str, ...], listed(str, "fp32,int8")]


def _check_forms(type_: Any, names: Sequence[str] | None) -> None:
    if unknown := sorted({*(names or ())} - {*ONNX_FORMS}):
        raise ValueError(f"Takes some of {', '.join(ONNX_FORMS)}, or none, not {', '.join(unknown)}")


ONNX_FORMS = ("fp32", "fp16", "int8")
OnnxForms = Annotated[Names, Parameter(validator=_check_forms)]
DataSpec = NewType("DataSpec", str)
"""Data as FORMAT:PATH; calls from Python may give rows in memory instead."""


def data_help(what: str) -> str:
    """The help of an option that names questions."""
    return f"{what}, as FORMAT:PATH (docs/data.md)."


def arguments_of(
    command: Callable[..., Any], words: Sequence[str], *, config: Callable[..., None] | None = None
) -> dict[str, Any]:
    """The arguments of `command` for the words of a command line. `config` is passed to cyclopts' app.

    Raises cyclopts.CycloptsError, with the option's name, for an unknown option or a wrong value.
    """
    app = App(default_parameter=DEFAULTS, help_flags=(), version_flags=(), config=config)
    app.default(command)
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    return dict(bound.arguments)


def error_message(error: CycloptsError) -> str:
    """The message of an error on a command line, in one line; for an old option it has the new name."""
    if isinstance(error, UnknownOptionError):
        option = (error.token.keyword or error.token.value).partition("=")[0]
        names = [name[2:].replace("-", "_") for each in error.argument_collection for name in each.names]
        if new := new_name(option.lstrip("-").replace("-", "_"), names):
            return f"{option} was renamed to --{new.replace('_', '-')}"
    return " ".join(str(error).split())


def replaced(words: Sequence[str], changes: Sequence[str]) -> list[str]:
    """The words of a command line, in which the options in `changes` replace the same options.

    >>> replaced(["--steps", "2", "--context", "--seed", "1"], ["--steps", "3"])
    ['--context', '--seed', '1', '--steps', '3']
    """
    call = list(words)
    for option in {word.partition("=")[0] for word in changes if word.startswith("--")} & set(call):
        start = call.index(option)
        end = next((at for at in range(start + 1, len(call)) if call[at].startswith("--")), len(call))
        del call[start:end]
    return [*call, *changes]
