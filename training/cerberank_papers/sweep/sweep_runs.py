"""The runs of a sweep: commands in processes and folders of their own, and what identifies their settings.

A run of a table is in OUT/<row>-<seed>, and the evaluations of a row are in OUT/systems/<row>/<seed>, as
`results table` reads them. What is finished is not repeated, so that a killed call continues when it is repeated.
OUT/settings.json holds what all runs of a sweep share.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from cyclopts import Parameter

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.commands.values import Count, DataSpec, Integers, arguments_of, listed
from cerberank_models.output import say, say_written
from cerberank_models.python_process import python_command
from cerberank_papers.commands import pairwise, pretrain, settings_from_recipe
from cerberank_papers.pairwise.pairwise_job import TextRankerJob
from cerberank_papers.pretraining.pretraining_job import PretrainingJob
from cerberank_training.commands.presets import options_from_recipe
from cerberank_training.commands.train import distil, teach
from cerberank_training.data import Subset
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.systems.comparison import compare_systems
from cerberank_training.evaluation.systems.folders import read_systems
from cerberank_training.evaluation.systems.rendering import markdown_table
from cerberank_training.learning.student_job import StudentJob
from cerberank_training.learning.teacher_job import TeacherJob
from cerberank_training.runs.base import open_base
from cerberank_training.runs.job import Job
from cerberank_training.runs.record import read_record
from cerberank_training.runs.run_data import data_content
from cerberank_training.teachers.teacher_score_cache import MANIFEST, read_manifest

TABLE = "table.md"
FREE = ("out", "run", "recipe", "name", "version", "terms", "forms")
"""Options of a run that do not determine its weights, or whose values other options have."""
ADDED = ("table", "device", "rows", "folds", "body_layers")
"""Options of a table to which values may be added when it goes on, or which do not determine its figures."""
EVALUATIONS = "systems"
"""The folder in OUT with a folder for each row, which is a system for `results table`."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of every table."""

    test: tuple[DataSpec, ...]
    """Test set as FORMAT:PATH; repeat for several."""
    sample: Count | None = None
    """Number of questions to draw from each test set, with seed 0 (default: all)."""
    seeds: Integers = (1,)
    """Random seeds, such as 1,2,3."""
    out: Path
    """Folder of all runs and of the table."""

    def per_question(self, row: str, seed: int, test: str) -> Path:
        """The per-question file of a run on a test set."""
        return self.out / EVALUATIONS / row / str(seed) / f"{_set(test)}.jsonl"


Rest = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]
"""The options of the command that every run calls."""
Words = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""Further options of a command, as one argument."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCommand:
    """A command that trains."""

    job: type[Job[Any]]
    command: Callable[..., object]
    config: Callable[..., None]
    """The configuration of cyclopts that reads the recipe."""


TRAINING: Mapping[str, TrainingCommand] = MappingProxyType(
    {
        "distil": TrainingCommand(job=StudentJob, command=distil, config=options_from_recipe("distil")),
        "pairwise": TrainingCommand(job=TextRankerJob, command=pairwise, config=settings_from_recipe),
        "pretrain": TrainingCommand(job=PretrainingJob, command=pretrain, config=options_from_recipe("pretrain")),
        "teach": TrainingCommand(job=TeacherJob, command=teach, config=options_from_recipe("teach")),
    }
)
"""The commands of `cerberank train` that a sweep runs, by their verbs."""
Evaluation = Callable[[str, Path], None]
"""A function that ranks a test set, and writes the per-question file."""


def contents(base: str, data: Mapping[str, str | None], teachers: Sequence[Path] = ()) -> dict[str, Any]:
    """The identity of the content that all runs of a table read, for its `Bound`: data by their options' names.

    Raises SourceError for a base that is not there, DataError and ScoreCacheError for data that cannot be read.
    """
    scored = [path for path in teachers if (path / MANIFEST).is_file()]  # runs that read others refuse them
    return {
        "contents.base": open_base(base).content(),
        **data_contents(data),
        **{f"contents.{path}": {SHA256: {MANIFEST: read_manifest(path).identity.decode()}} for path in scored},
    }


def data_contents(data: Mapping[str, str | None]) -> dict[str, Any]:
    """The identity of data by their options' names. Raises DataError for data that cannot be read."""
    return {f"contents.{name}": data_content(spec) for name, spec in data.items() if spec}


class CommandError(RuntimeError):
    """A command in a process of its own has failed, after a message."""


def run_command(name: str, *arguments: object) -> None:
    """Run a command, such as `train distil`, in a process of its own; raises CommandError when it fails."""
    done = subprocess.run(python_command("cerberank", *name.split(), *map(str, arguments)), check=False)
    if done.returncode:
        raise CommandError(f"`cerberank {name}` ended with exit code {done.returncode}; its message stands above")


def row_names(rows: Sequence[str], example: str) -> Parameter:
    """The parameter of an option that chooses from the rows of a table."""

    def known(name: str) -> str:
        if name not in rows:
            raise ValueError(name)
        return name

    return listed(known, example)


def settings_of(options: Any) -> dict[str, Any]:
    """The settings of a table with which it must go on, for its `Bound`; `options.table` are its `TableOptions`."""
    names = [each.name for each in fields(options) if each.name not in ADDED]
    return {name: getattr(options, name) for name in names} | {"sample": options.table.sample}


def recorded(options: Any) -> dict[str, Any]:
    """The settings of a training command that all runs of a sweep share, for its `Bound`."""
    return {name: value for name, value in asdict(options).items() if name not in FREE}


def job_of(verb: str, *words: object) -> Job[Any]:
    """The run of `train VERB` with these options, to be checked before the first run of a sweep.

    Raises cyclopts.CycloptsError or UsageError, with the option's name, for an unknown option or a wrong value.
    """
    training = TRAINING[verb]
    options = arguments_of(training.command, [*map(str, words)], config=training.config)["options"]
    return training.job(options)


def result_of(folder: Path, verb: str) -> Path:
    """The file or folder that is written last by a run of `train VERB` in this folder."""
    return folder / TRAINING[verb].job.result_name


def is_finished(folder: Path, verb: str) -> bool:
    """True if the run in this folder has its result and its figures."""
    return result_of(folder, verb).exists() and bool((record := read_record(folder)) and record.results)


def trained(folder: Path, verb: str, *words: object) -> Path:
    """The folder of a run of `train VERB` with these options, which is begun or continued unless it is finished."""
    if not is_finished(folder, verb):
        run_command(f"train {verb}", *words, "--out", folder)
    return folder


def fill_table(
    table: TableOptions, rows: Mapping[str, Callable[[int], Evaluation | None]], *, report: Callable[[], None]
) -> Path:
    """Train and evaluate every row with every seed, except for what is finished; print the table, and return its path.

    `rows` are functions that train a row with a seed, and return its evaluation; None if it has no run of this seed.
    `report` writes the table.
    """
    for seed in dict.fromkeys(table.seeds):
        for row, train in rows.items():
            evaluation = train(seed)
            if evaluation is not None and evaluate_run(table, row, seed, evaluation):
                report()
    report()
    return say_table(table.out)


def evaluate_run(table: TableOptions, row: str, seed: int, evaluation: Evaluation) -> bool:
    """Evaluate a run on the test sets that have no result yet. Returns true if there was such a set."""
    files = {test: table.per_question(row, seed, test) for test in table.test}
    missing = {test: path for test, path in files.items() if not path.is_file()}
    for test, path in missing.items():
        evaluation(test, path)
    return bool(missing)


def ranker_evaluation(table: TableOptions, *source: object) -> Evaluation:
    """The evaluation of a ranker that `source`, options of `cerberank evaluate`, names."""
    drawn = () if table.sample is None else ("--sample", table.sample)
    return lambda test, path: run_command("evaluate", *source, "--data", test, *drawn, "--per-question", path)


def checkpoint_evaluation(table: TableOptions, checkpoint: Path, *, device: str) -> Evaluation:
    """The evaluation of a checkpoint's weights in fp32; pairs that are too long are cut, as in training."""
    form = ("--backend", "torch", "--precision", "fp32", "--windows", "off", "--device", device)
    return ranker_evaluation(table, "--checkpoint", checkpoint, *form)


def teacher_evaluation(table: TableOptions, teacher: Path, *, device: str) -> Evaluation:
    """The evaluation of a teacher, after a checkpoint was made of it in its folder."""
    if not (checkpoint := teacher / "checkpoint").is_dir():
        run_command("import", teacher, checkpoint, "--name", teacher.name, "--forms", "none")
    return checkpoint_evaluation(table, checkpoint, device=device)


def write_table(
    table: TableOptions,
    rows: Sequence[str],
    more: Sequence[str] = (),
    *,
    measures: str,
    baseline: str,
    subset: Subset = "clean",
) -> None:
    """Write a table for each measure, and the texts `more`; the baseline is used if one of its runs is finished.

    The tables have all runs that are finished on every test set, not only those that this call added.
    """
    folders = [folder for row in rows if any((folder := table.out / EVALUATIONS / row).glob("*/*.jsonl"))]
    systems = read_systems(folders, sets=list(map(_set, table.test)))
    rival = baseline if baseline in systems else None
    compared = (compare_systems(systems, each, baseline=rival, subset=subset) for each in parse_measures(measures))
    tables = list(map(markdown_table, compared))
    write_bytes(table.out / TABLE, ("\n\n".join([*tables, *more]) + "\n").encode())


def say_table(out: Path) -> Path:
    """Print the table of a sweep, and its path, which is returned."""
    path = out / TABLE
    say(path.read_text(encoding="utf-8"))
    say_written((path, "this table"))
    return path


def _set(test: str) -> str:
    """The name of a test set; a digest keeps sets apart whose files have the same name."""
    form, _, path = test.partition(":")
    stem = re.split(r"[.?]", Path(path).name)[0]
    return f"{form}-{stem}-{hashlib.sha256(test.encode()).hexdigest()[:8]}"
