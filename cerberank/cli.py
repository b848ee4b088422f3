"""The `cerberank` program: the table of its commands. The code of a command is imported when the command is called."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

from cyclopts import App, CycloptsError, MissingArgumentError

from cerberank_models import __version__
from cerberank_models.checkpoint.bundled import BUNDLED
from cerberank_models.commands.values import DEFAULTS, error_message, is_recipe_key
from cerberank_models.output import UsageError, installed_by, note, say

MODELS, SERVICE = "cerberank_models", "cerberank_service"
TRAINING, PAPERS = "cerberank_training", "cerberank_papers"
TORCH = MappingProxyType({"torch": "torch"})
GROUPS = {
    "": "",
    "store": "Stores that services follow: push, pull, list, label.",
    "checkpoint": "Checkpoint folders: info, card, calibrate, weights, random, first-stage, average.",
    "train": "Training: teach, pretrain, distil, pairwise, accelerate, tune, sweep, recipes, runs.",
    "data": "Training data, teachers' scores and stored vectors: count, mine, sample, score, embed.",
    "results": "Results of `evaluate`: compare, table, ensemble.",
    "admin": "Running services: probe, keys, models, label, load, unload, rollback, schedule, drain, resume.",
}
"""The help of each group: its subject, then its commands in their order. The name "" is the top level."""
RENAMED = MappingProxyType({"eval": "results", "server": "admin"})
"""Groups of 0.1.0, and their names now."""
COMPLETION = "--install-completion"
OPTIONS = (COMPLETION, "--help", "-h", "--version")
"""Options that can be given instead of a command."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command of the program."""

    name: str
    """The words after `cerberank`, such as `store push`."""
    target: str
    """The code: `module:function`, or `module:app` for a command with subcommands."""
    help: str
    extra: str = ""
    """The extra of the distribution that installs the libraries of the command."""
    on_demand: Mapping[str, str] = field(default_factory=dict)
    """Libraries that only some options import, each with the extra that installs it."""

    @property
    def group(self) -> str:
        """The command's group, which is the first of two words; "" at the top level."""
        return self.name.rpartition(" ")[0]

    @property
    def is_installed(self) -> bool:
        """True if the libraries that the command imports are installed."""
        try:
            import_module(self.target.partition(":")[0])
        except ModuleNotFoundError:
            return False
        return True

    def extra_for(self, library: str) -> str:
        """The extra that installs a library which could not be imported."""
        return self.on_demand.get(library, self.extra)


def _of(package: str, extra: str, *rows: tuple[str, str, str], **more: Any) -> list[Command]:
    """Commands of one package that need the same extra."""
    return [
        Command(name=name, target=f"{package}.{target}", help=help_, extra=extra, **more)
        for name, target, help_ in rows
    ]


COMMANDS = (
    *_of(
        SERVICE,
        "serve",
        ("serve", "serve:serve", "Answer ranking requests over HTTP."),
        ("settings", "commands.settings:settings", "Show the service's settings, with their values here."),
        on_demand=TORCH,
    ),
    *_of(
        MODELS,
        "serve",
        ("rank", "commands.rank:rank", "Rank candidates from a file or standard input."),
        ("data embed", "commands.embed:embed", "Store the vectors of candidates for a first stage."),
        ("checkpoint info", "commands.info:info", "Show a checkpoint's network, precisions, exits and figures."),
        ("checkpoint card", "commands.card:card", "Change the model card, the name or the version of a checkpoint."),
        on_demand={**TORCH, "ray": "ray"},
    ),
    *_of(
        "cerberank",
        "mcp",
        ("mcp", "mcp_server:mcp", "Serve the tools `rerank` and `filter` to a language model (MCP)."),
        on_demand={**TORCH, **dict.fromkeys(("onnx", "onnxscript", "transformers"), "import")},
    ),
    *_of(
        TRAINING,
        "import",
        ("import", "commands.import_checkpoint:import_", "Make a checkpoint from a Hugging Face model that ranks."),
        on_demand={"pyarrow": "training"},
    ),
    *_of(
        TRAINING,
        "training",
        (
            "export",
            "commands.export:export",
            "Write and check ONNX graphs (int8, fp16, fp32), or a Hugging Face model.",
        ),
        (
            "evaluate",
            "commands.evaluation.evaluate:evaluate",
            "Measure how well a checkpoint, service or TREC run ranks.",
        ),
        ("train tune", "commands.tune:tune", "Choose the drop ratios of exits, by a bound on loss or cost."),
        ("checkpoint average", "commands.average:average", "Average the weights of checkpoints."),
        (
            "train recipes",
            "commands.recipes:recipes",
            "List the recipes and the papers' presets, or show the settings of one.",
        ),
        ("train runs", "commands.runs:runs", "Show the runs below a folder."),
        ("data count", "commands.count:count", "Count the questions, pairs and positives of data sets."),
        ("data sample", "commands.sample:sample", "Write the questions and candidates that a training run would draw."),
        (
            "results compare",
            "commands.evaluation.compare:compare",
            "Compare two evaluations, with significance tests.",
        ),
        (
            "checkpoint calibrate",
            "commands.evaluation.calibrate:calibrate",
            "Fit probabilities to a checkpoint's scores.",
        ),
        ("results table", "commands.evaluation.table:table", "Put systems, seeds and sets into one table."),
        ("results ensemble", "commands.evaluation.ensemble:ensemble", "Combine the scores of several evaluations."),
    ),
    *_of(
        TRAINING,
        "training",
        ("train teach", "commands.train:teach_app", "Fine-tune a cross-encoder as a teacher (TANDA)."),
        ("train distil", "commands.train:distil_app", "Train a student by a recipe, on labels or teachers' scores."),
        ("train accelerate", "commands.accelerate:accelerate", "Add exits to a ranker, trained on its own scores."),
        ("data mine", "commands.mine:mine", "Find hard negatives for questions in a collection."),
        ("data score", "commands.score:score", "Score pairs with a teacher, and keep the scores on disk."),
        on_demand={"ray": "ray"},
    ),
    *_of(
        PAPERS,
        "training",
        ("train pretrain", "commands:pretrain_app", "Continue the pre-training of an encoder on documents (SSP)."),
        ("train pairwise", "commands:pairwise_app", "Train bi-encoders and their teachers on triples (TRMD)."),
        ("train sweep", "sweep.app:app", "Train a recipe with several settings, or a paper's systems."),
    ),
    *_of(
        MODELS,
        "training",
        (
            "checkpoint weights",
            "commands.weights:weights",
            "Read weights back from ONNX graphs, to train them further.",
        ),
    ),
    *_of(
        TRAINING,
        "training",
        (
            "checkpoint first-stage",
            "commands.first_stage:first_stage",
            "Attach a bi-encoder that ranks before pairs are read.",
        ),
    ),
    *_of(
        MODELS,
        "torch",
        ("checkpoint random", "commands.shape:random", "Make a checkpoint of a shape with random weights."),
        on_demand={"onnx": "training", "onnxruntime": "training"},
    ),
    *_of(
        MODELS,
        "url",
        ("store push", "commands.store:push", "Add a checkpoint to a store as a version."),
        ("store pull", "commands.store:pull", "Copy a version out of a store."),
        ("store list", "commands.store:list_", "Show the models, versions and labels of a store."),
        ("store label", "commands.store:label", "Move a label in a store to a version, or remove it."),
    ),
    *_of(
        SERVICE,
        "service",
        ("admin probe", "commands.probe:probe", "Check whether the service on this machine is ready or alive."),
        ("admin keys", "commands.keys:app", "Create, list and remove API keys."),
        (
            "admin models",
            "commands.admin:models",
            "Show the versions that a service has loaded, and those of its store.",
        ),
        ("admin label", "commands.admin:label", "Move a label in the store that a service follows."),
        ("admin load", "commands.admin:load", "Load a version, and keep it loaded."),
        ("admin unload", "commands.admin:unload", "Unload a version that no label names."),
        ("admin rollback", "commands.admin:rollback", "Move the label stable back to its previous version."),
        ("admin schedule", "commands.admin:schedule", "Change a version's default drop schedule in one replica."),
        ("admin drain", "commands.admin:drain", "Make a replica refuse new questions until it is resumed."),
        ("admin resume", "commands.admin:resume", "Make a drained replica accept questions again."),
    ),
)


def program(called: Command | None = None, commands: Sequence[Command] = COMMANDS) -> App:
    """The program. Only the command that is `called` is imported, when it runs or shows its help."""
    options: dict[str, Any] = {
        "default_parameter": DEFAULTS,
        "help_format": "markdown",
        "suppress_keyboard_interrupt": False,
    }
    about = f"Rank answers, serve rankers, train them. `cerberank {COMPLETION}` completes words in this shell."
    root = App(name="cerberank", version=_versions, help=about, **options)
    apps = {"": root}
    for order, (name, help_) in enumerate(GROUPS.items()):
        if name:
            apps[name] = App(name=name, help=help_, version_flags=(), sort_key=len(COMMANDS) + order, **options)
            root.command(apps[name])
    for place, command in enumerate(commands):
        target, word = apps[command.group], command.name.rpartition(" ")[2]
        order = GROUPS[command.group].rstrip(".").partition(": ")[2].split(", ").index(word) if command.group else place
        # For the called command, no line is given here, because it would replace the docstring, which is its full help.
        line = None if command is called else command.help
        target.command(command.target, name=word, help=line, sort_key=order)
    return root


def _versions() -> str:
    """The versions of the distribution and of the bundled model."""
    manifest = json.loads((BUNDLED / "manifest.json").read_text(encoding="utf-8"))
    return f"cerberank {__version__}, bundled model {BUNDLED.name} {manifest['version']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code: 1 after an error, 2 for a wrong command line, 130 after Ctrl-C."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    command = _named(tokens)
    name = "cerberank" if command is None else f"cerberank {command.name}"
    try:
        _check_words(tokens)
        if tokens == [COMPLETION]:
            installed = [each for each in COMMANDS if each.is_installed]
            say(f"{program(commands=installed).install_completion()} is written; a new shell completes words by it")
            return 0
        root = program(command)
        _refuse_recipe_keys(root, command, tokens)
        code = root(tokens, result_action="return_value", exit_on_error=False, print_error=False)
    except (CycloptsError, UsageError) as error:
        message = message_of(error)
        return _fail(f"{name}: {message}{'' if message.endswith(('.', '?')) else '.'} See {name} --help", code=2)
    except ImportError as error:
        return _fail(f"{name}: {missing_library(command, error)}", code=1)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not _is_expected(error):
            raise
        return _fail(f"{name}: {message_of(error)}", code=1)
    return code if isinstance(code, int) else 0 if tokens else 2


def _named(tokens: Sequence[str]) -> Command | None:
    """The command that the first words name."""
    by_name = {command.name: command for command in COMMANDS}
    return by_name.get(" ".join(tokens[:1])) or by_name.get(" ".join(tokens[:2]))


def _check_words(tokens: Sequence[str]) -> None:
    """Raise UsageError if the first word, or the second one in a group, is not a command.

    cyclopts is not left to report this, because it would import every command, even those whose libraries are missing.
    """
    if tokens and (renamed := RENAMED.get(tokens[0])):
        groups = [each.group for each in COMMANDS if each.group and each.name.split()[1:] == list(tokens[1:2])]
        word = f" {tokens[1]}" if groups else ""
        group = renamed if renamed in groups or not groups else groups[0]
        raise UsageError(f'"cerberank {tokens[0]}{word}" is now "cerberank {group}{word}".')
    group = next((token for token in tokens[:1] if token in GROUPS), "")
    word = next(iter(tokens[1:] if group else tokens), "")
    words = [command.name.removeprefix(group).strip() for command in COMMANDS if command.group == group]
    words += [] if group else list(filter(None, GROUPS))
    if word in ("", *words, *OPTIONS):
        return
    elsewhere = [command.name for command in COMMANDS if command.name.split()[-1] == word]
    near = elsewhere or [f"{group} {name}".strip() for name in get_close_matches(word, words, n=1)]
    hint = f'Did you mean "cerberank {near[0]}"?' if near else f"There are {', '.join(sorted(words))}."
    raise UsageError(f'Unknown command "{word}"{f" of {group}" if group else ""}. {hint}')


def _refuse_recipe_keys(root: App, command: Command | None, tokens: Sequence[str]) -> None:
    """Raise UsageError for a setting that recipes alone have."""
    flags = {token.partition("=")[0] for token in tokens if token.startswith("--")}
    if command is None or not flags:
        return
    app = root
    for word in command.name.split():
        app = app[word]
    if app.default_command is None:
        return
    for key in app.assemble_argument_collection():
        if is_recipe_key(key) and flags & set(key.names):
            raise UsageError(f"{key.name} is a key of recipes and no option: write it in a TOML file (docs/recipes.md)")


def _is_expected(error: Exception) -> bool:
    """True for errors with a message for the user: wrong values, files, addresses and answers, and our own types."""
    ours = type(error).__module__.startswith(("cerberank", "httpx"))
    return ours or isinstance(error, ValueError | OSError | ArithmeticError)


def message_of(error: Exception) -> str:
    """The message of an error, in our own words where a library's would not help."""
    if isinstance(error, MissingArgumentError) and error.argument is not None and error.keyword is None:
        # Options of a class are missing together: the first that is required is named.
        options = [each.name for each in error.argument.children if each.required]
        return f"{[*options, error.argument.name][0]} is missing."
    if type(error).__name__ == "ValidationError" and isinstance(error, ValueError):
        from cerberank_models.json_lines import validation_message  # noqa: PLC0415 - imports pydantic

        return validation_message(error)
    if type(error).__name__ == "InvalidURL":  # of a proxy, because the commands check their own addresses before
        return _proxy_problem(error)
    return error_message(error) if isinstance(error, CycloptsError) else str(error)


def missing_library(command: Command | None, error: ImportError) -> str:
    """The message on a library that is not installed. Raises the error if the fault is not the installation's."""
    if "socksio" in str(error):  # httpx's error for a proxy of the environment, also in other libraries
        return _proxy_problem(error)
    missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
    library = missing.name if isinstance(missing, ModuleNotFoundError) else None
    if command is None or library is None or library.startswith("cerberank"):
        raise error
    return f"{library!r} is not installed; {installed_by(command.extra_for(library))}"


def _proxy_problem(error: Exception) -> str:
    from cerberank_models.connection import proxy_problem  # noqa: PLC0415 - importing httpx takes long

    return proxy_problem(error)


def _fail(message: str, *, code: int) -> int:
    note(message)
    return code
