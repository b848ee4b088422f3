"""The `cerberank` program: the verbs of all packages; the code of a verb is loaded when it is called."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from cerberank_models import __version__
from cerberank_models.commands.verbs import VERBS as MODELS
from cerberank_models.verbs import Verb
from cerberank_service.verbs import VERBS as SERVICE
from cerberank_training.commands.verbs import VERBS as TRAINING

VERBS = {verb.name: verb for verb in sorted((*MODELS, *SERVICE, *TRAINING), key=lambda verb: verb.order)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code, 2 for a wrong call."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] == "--version":
        _print(f"cerberank {__version__}")
        return 0
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        _print(_usage())
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name not in VERBS:
        near = difflib.get_close_matches(name, VERBS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see cerberank --help"
        return _fail(f"cerberank: there is no verb {name!r}; {hint}", code=2)
    return _run(VERBS[name], rest)


def _run(verb: Verb, arguments: list[str]) -> int:
    module, _, function = verb.target.partition(":")
    try:
        run = cast(Callable[[list[str]], int], getattr(import_module(module), function))
        return run(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cerberank"):
            raise
        return _fail(
            f"cerberank {verb.name}: {error.name!r} is not installed; run: {_install(verb.extra_for(error.name))}",
            code=1,
        )
    except KeyboardInterrupt:
        return 130


def _install(extra: str) -> str:
    return f"pip install 'cerberank[{extra}]'"


def _usage() -> str:
    width = max(map(len, VERBS))
    rows = "\n".join(f"  {verb.name:{width}}  {verb.help}" for verb in VERBS.values())
    return f"usage: cerberank VERB ...\n\n{rows}\n\ncerberank VERB --help tells more; cerberank --version the version."


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _fail(message: str, *, code: int) -> int:
    sys.stderr.write(message + "\n")
    return code
