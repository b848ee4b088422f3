"""The `cerberank` program: finds the verbs that the installed packages bring; each is loaded only when it is called."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points, version
from typing import cast

from cerberank_models.verbs import GROUP, InstalledVerbs, Verb, installed_verbs


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code, 2 for a wrong call."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] == "--version":
        _print(f"cerberank {version('cerberank')}")
        return 0
    installed = installed_verbs(entry_points(group=GROUP))
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        _print(_usage(installed))
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    if name not in installed.verbs:
        return _fail(f"cerberank: there is no verb {name!r}{_hint(name, installed)}", code=2)
    return _run(installed.verbs[name], rest)


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


def _hint(name: str, installed: InstalledVerbs) -> str:
    if not installed.verbs:
        return ", nor any other: install cerberank again, its entry points are older than its code"
    near = difflib.get_close_matches(name, installed.verbs, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "; see cerberank --help"
    if installed.absent:
        hint += f" More verbs come with: {', '.join(map(_install, installed.absent))}"
    return hint


def _install(extra: str) -> str:
    return f"pip install 'cerberank[{extra}]'"


def _usage(installed: InstalledVerbs) -> str:
    width = max(map(len, installed.verbs), default=0)
    rows = "\n".join(f"  {verb.name:{width}}  {verb.help}" for verb in installed.verbs.values())
    return f"usage: cerberank VERB ...\n\n{rows}\n\ncerberank VERB --help tells more; cerberank --version the version."


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _fail(message: str, *, code: int) -> int:
    sys.stderr.write(message + "\n")
    return code
