"""The `cerberank` program: a table of verbs, each loaded only when it is called."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import cast

VERBS: dict[str, tuple[str, str]] = {
    "serve": ("cerberank_service.serve", "answer ranking requests over HTTP"),
    "admin": ("cerberank_service.admin.command", "load, unload, roll back, drain: on a running service"),
    "keys": ("cerberank_service.access.keys_command", "make, list and remove the API keys of a service"),
    "rank": ("cerberank_models.commands.rank", "rank candidates from a file or standard input"),
    "bench": ("cerberank_benchmarks.command", "measure candidates per second against sentence-transformers"),
    "import": ("cerberank_models.commands.import_model", "make a checkpoint from a Hugging Face cross-encoder"),
    "teach": ("cerberank_training.commands.teach", "fine-tune a Hugging Face classifier into a teacher"),
    "sample": ("cerberank_training.commands.sample", "write the groups that a recipe trains on, for teachers to score"),
    "score": ("cerberank_training.commands.score", "let a teacher score a data set into a cache"),
    "distil": ("cerberank_training.commands.distil", "train a student by a recipe, on labels or teachers' scores"),
    "strategies": ("cerberank_training.commands.strategies", "train one student by every strategy and compare"),
    "evaluate": ("cerberank_training.commands.evaluate", "MAP, MRR, P@1 of a checkpoint or of a running service"),
    "compare": ("cerberank_training.commands.compare", "is one ranking better than another: Wilcoxon, Spearman"),
    "average": ("cerberank_training.commands.average", "the mean of the weights of related checkpoints"),
    "ensemble": ("cerberank_training.commands.ensemble", "combine models' scores with weights tuned on dev"),
    "tune": ("cerberank_training.commands.tune", "choose the drop schedule of a cascade on dev data"),
    "export": ("cerberank_training.commands.export", "write a checkpoint's serving form behind a parity gate"),
    "push": ("cerberank_models.commands.store:push", "make a checkpoint a version in a store, and move a label to it"),
    "pull": ("cerberank_models.commands.store:pull", "copy a version out of a store"),
    "list": ("cerberank_models.commands.store:list_", "show the models, versions and labels of a store"),
    "label": ("cerberank_service.admin.label_command", "move a label to a version, or take it away"),
}

EXTRAS = {
    "serve": "service,onnx-cpu",
    "admin": "service",
    "keys": "service",
    "rank": "onnx-cpu",
    "bench": "dev",
    "push": "url",
    "pull": "url",
    "list": "url",
    "label": "url",
}
"""What a verb needs beside the base; every other verb needs `training`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code, 2 for a wrong call."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        _print(_usage())
        return 0 if arguments else 2
    verb, rest = arguments[0], arguments[1:]
    if verb == "--version":
        _print(f"cerberank {version('cerberank')}")
        return 0
    if verb not in VERBS:
        near = difflib.get_close_matches(verb, VERBS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; see cerberank --help"
        return _fail(f"cerberank: there is no verb {verb!r}{hint}", code=2)
    module, _, function = VERBS[verb][0].partition(":")
    try:
        run = cast(Callable[[list[str]], int], getattr(import_module(module), function or "main"))
        return run(rest)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cerberank"):
            raise
        return _fail(
            f"cerberank {verb}: {error.name!r} is not installed; "
            f"run: pip install 'cerberank[{_extra(verb, error.name)}]'",
            code=1,
        )
    except KeyboardInterrupt:
        return 130


def _extra(verb: str, missing: str) -> str:
    """The extra that brings the module `missing`; serve and rank run without torch until they are asked for it."""
    if missing == "ray":
        return "ray"
    if verb in EXTRAS and missing in {"torch", "safetensors"}:
        return "dev" if verb == "bench" else "torch"
    return EXTRAS.get(verb, "training")


def _usage() -> str:
    rows = "\n".join(f"  {verb:10}{help_}" for verb, (_, help_) in VERBS.items())
    return f"usage: cerberank VERB ...\n\n{rows}\n\ncerberank VERB --help tells more; cerberank --version the version."


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _fail(message: str, *, code: int) -> int:
    sys.stderr.write(message + "\n")
    return code
