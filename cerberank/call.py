"""Calls of commands from Python: values become the words of a command line, so that both check the same.

Data in memory become files in a temporary folder, which is removed after the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

from cyclopts import App, CycloptsError
from cyclopts.argument import Argument

from cerberank.cli import COMMANDS, message_of, missing_library, program
from cerberank_models.commands.values import DataSpec, is_recipe_key
from cerberank_models.output import UsageError

ItemT = TypeVar("ItemT")
Several: TypeAlias = ItemT | Sequence[ItemT]
"""The value of an option that may be repeated: one value, or a sequence of them."""


def call(name: str, values: Mapping[str, Any]) -> Any:
    """The result of the command `cerberank NAME` with these values by the names of `python_name`; None is not given.

    Raises the errors of the command, whose messages name the Python arguments, UsageError for values that it does not
    take, and ModuleNotFoundError, which names the extra, for a library that is missing.
    """
    command = next(each for each in COMMANDS if f"{name} ".startswith(f"{each.name} "))
    with TemporaryDirectory(prefix="cerberank-") as folder:
        try:
            root = program(command)
            arguments = {python_name(each): each for each in parameters(application(root, name))}
            given = {key: value for key, value in values.items() if value is not None}
            named = {key: with_files(arguments[key], value, Path(folder) / key) for key, value in given.items()}
            options = [word for key, value in named.items() for word in words(arguments[key], value)]
            places = [str(each) for key, value in named.items() for each in positional(arguments[key], value)]
            line = [*name.split(), *options, "--", *places]
            return root(line, result_action="return_value", exit_on_error=False, print_error=False)
        except CycloptsError as error:
            raise UsageError(in_python(message_of(error), arguments, folder)) from error
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(missing_library(command, error), name=error.name) from error
        except ValueError as error:
            message = in_python(message_of(error), arguments, folder)
            if not error.args:  # of pydantic
                raise ValueError(message) from error
            if len(error.args) == 1:
                error.args = (message,)
            raise


def application(root: App, name: str) -> App:
    """The part of the program that is called `cerberank NAME`."""
    for word in name.split():
        root = root[word]
    return root


def parameters(app: App) -> Iterator[Argument]:
    """The parameters of a command that users see, and the keys of recipes, in the order of the settings."""
    every = app.assemble_argument_collection()
    return (each for each in every if each.parse and (each.show or each.is_var_positional() or is_recipe_key(each)))


def python_name(argument: Argument) -> str:
    """The name of an option in Python."""
    return identifier(argument.name.lstrip("-").lower())


def identifier(word: str) -> str:
    """A word of the command line as a name of Python.

    >>> identifier("learning-rate"), identifier("import")
    ('learning_rate', 'import_')
    """
    name = word.replace("-", "_")
    return f"{name}_" if iskeyword(name) else name


def with_files(argument: Argument, value: Any, path: Path) -> Any:
    """The value with FORMAT:PATH instead of data in memory, which are written to `path` with a suffix."""
    if DataSpec.__name__ not in str(argument.field_info.annotation):
        return value
    from cerberank_training.data.in_memory import is_one, named_data  # noqa: PLC0415 - imports pyarrow

    if is_one(value):
        return named_data(value, path.with_suffix(".jsonl"))
    return [named_data(each, path.with_name(f"{path.name}-{number}.jsonl")) for number, each in enumerate(value, 1)]


def words(argument: Argument, value: Any) -> list[str]:
    """The words of an option; of several values each has a word."""
    flag, values = argument.name, items(value)
    if not flag.startswith("-"):
        return []
    # An empty value means an empty list for options that take it apart, and no option leaves out a repeated one.
    empty = [f"{flag}="] if argument.parameter.converter else []
    return [f"{flag}={','.join(map(str, items(each)))}" for each in values] or empty


def positional(argument: Argument, value: Any) -> list[Any]:
    """The values of a parameter without a flag."""
    return [] if argument.name.startswith("-") else items(value)


def items(value: Any) -> list[Any]:
    """The items of a sequence; a string or another single value is one item."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | Path) else [value]


def in_python(message: str, arguments: Mapping[str, Argument], folder: str) -> str:
    """The message with the names of arguments instead of flags, and instead of the files of data in memory.

    Whole commands, which stand between backticks, are left as they are.
    """
    names = {flag: name for name, argument in arguments.items() for flag in argument.names}
    message = re.sub(rf"(?:\w+:)?{re.escape(folder)}/([\w-]+)\.jsonl", r"\1", message)
    return re.sub(r"`[^`]*`|--[a-z][a-z0-9-]*", lambda flag: names.get(flag[0], flag[0]), " ".join(message.split()))
