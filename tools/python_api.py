"""The module `cerberank.training`: a function for each command of training, generated from the command line."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from cerberank.call import application, identifier, parameters, python_name
from cerberank.cli import COMMANDS, program
from cyclopts import App
from cyclopts.argument import Argument

from cerberank_models.commands.values import DataSpec
from tools.process import ROOT

MODULE = ROOT / "cerberank" / "training.py"
EXTRAS = ("training", "import")
"""The extras of the commands that have a function."""
HEAD = '''\
"""The commands of training as functions; a value of None is not given, and has the default of the command.

`python -m tools.reference` writes this module. `cerberank COMMAND --help` and docs/commands describe the arguments by
the names of options: `--learning-rate` is `learning_rate` here. Messages name the arguments as Python does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cerberank.call import Several, call

if TYPE_CHECKING:
'''


def commands(root: App, name: str) -> Iterator[tuple[str, App]]:
    """The command of this name, or its subcommands, each with its name."""
    app = application(root, name)
    if app.default_command is not None:
        yield name, app
        return
    for word in app:
        if not word.startswith("-"):
            yield from commands(root, f"{name} {word}")


def training_module() -> str:
    """The text of the module."""
    found = [
        each for command in COMMANDS if command.extra in EXTRAS for each in commands(program(command), command.name)
    ]
    imported: dict[str, set[str]] = {"cerberank_training.data.in_memory": {"Data"}}
    definitions = sorted(function(name, app, imported) for name, app in found)
    names = ((module, ", ".join(sorted(imported[module]))) for module in sorted(imported))
    imports = "".join(f"    from {module} import {classes}\n" for module, classes in names)
    return HEAD + imports + "".join(f"\n\n{each}" for each in definitions)


def function(name: str, app: App, imported: dict[str, set[str]]) -> str:
    """The definition of a command's function. Classes of its result are added to those that are `imported`."""
    command = app.default_command
    assert command is not None
    every = list(parameters(app))
    several = [each for each in every if each.is_var_positional()]
    lines = [argument(each) for each in every if each.is_positional_only() and each not in several]
    lines += ["/"] if lines else []
    lines += [f"*{python_name(each)}: {of_any(get_args(each.hint)[0])}" for each in several]
    options = [each for each in every if each.name.startswith("-")]
    lines += ["*"] if options and not any(line.startswith("*") for line in lines) else []
    lines += [argument(each) for each in sorted(options, key=lambda each: not each.required)]
    signature = "".join(folded(f"    {line},\n") for line in lines)
    result = written(get_type_hints(command)["return"], imported)
    summary = " ".join((inspect.getdoc(command) or "").partition("\n\n")[0].split())
    narrow = 116 if len(summary) <= 110 else 100
    text = "\n    ".join(wrap(f'"""{summary}', narrow)) + ("\n    " if narrow == 100 else "")
    word = identifier(name.partition(" ")[2].removeprefix("train ").replace(" ", "_") or name)
    return f'def {word}(\n{signature}) -> {result}:\n    {text}"""\n    return call("{name}", locals())\n'


def folded(line: str) -> str:
    """A line of a signature; the values of a Literal stand on a line of their own if the line is too long."""
    return line if len(line) <= 121 else line.replace("[", "[\n        ").replace("]", "\n    ]")


def argument(parameter: Argument) -> str:
    """The name and type of an argument."""
    type_ = f"{python_name(parameter)}: {of_any(parameter.field_info.annotation)}"
    return type_ if parameter.required else f"{type_.removesuffix(' | None')} | None = None"


def of_any(annotation: Any) -> str:
    """The type of a value in Python. What only text can state has the type of text."""
    if get_origin(annotation) is Annotated:
        return of_any(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join("None" if each is type(None) else of_any(each) for each in get_args(annotation))
    if get_origin(annotation) is tuple and get_args(annotation)[1:] == (...,):
        return f"Several[{of_any(get_args(annotation)[0])}]"
    return of_one(annotation)


def of_one(annotation: Any) -> str:
    """The type of a single value."""
    if get_origin(annotation) is Annotated:
        return of_one(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(annotation)))}]".replace("'", '"')
    if annotation is DataSpec:
        return "Data"
    return {Path: "str | Path", bool: "bool", int: "int", float: "float"}.get(annotation, "str")


def written(result: Any, imported: dict[str, set[str]]) -> str:
    """The type of a result as it is written, with its classes among those that are `imported`."""
    if result is type(None):
        return "None"
    if arguments := get_args(result):
        inside = ["..." if each is ... else written(each, imported) for each in arguments]
        return f"{get_origin(result).__name__}[{', '.join(inside)}]"
    if result.__module__ not in ("builtins", "pathlib"):
        imported.setdefault(result.__module__, set()).add(result.__name__)
    return str(result.__name__)
