"""`cerberank train sweep cerberus-models`: the models of CERBERUS's table 2, from their encoders to their figures."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from cyclopts import Parameter

from cerberank_models.checkpoint.bound import Bound
from cerberank_models.commands.options import Device
from cerberank_models.commands.values import DataSpec, data_help, listed
from cerberank_models.output import UsageError
from cerberank_papers.sweep.sweep_runs import (
    Evaluation,
    TableOptions,
    Words,
    checkpoint_evaluation,
    data_contents,
    evaluate_run,
    fill_table,
    is_finished,
    job_of,
    result_of,
    row_names,
    run_command,
    settings_of,
    teacher_evaluation,
    trained,
    write_table,
)

FAMILIES = ("albert", "roberta", "electra")
LARGE = tuple(f"{family}-large" for family in FAMILIES)
BASE = tuple(f"{family}-base" for family in FAMILIES)


@dataclass(frozen=True, slots=True)
class Student:
    """A row whose model learns from teachers."""

    start: str
    """The plain model that it starts from, before it is adapted."""
    teachers: tuple[str, ...]
    """The models that teach it; one that is named again is another one, with the next seed."""


STUDENTS: Mapping[str, Student] = MappingProxyType(
    {
        **{f"{family}-distilled": Student(f"{family}-base", ("electra-large",)) for family in FAMILIES},
        "electra-of-albert": Student("electra-base", ("albert-large",)),
        "electra-of-roberta": Student("electra-base", ("roberta-large",)),
        "hydra": Student("electra-base", ("electra-base",) * 3),
        "cerberus": Student("electra-base", LARGE),
    }
)
"""Rows 7 to 9, the two other members of row 12, and rows 13 and 14."""
ENSEMBLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ensemble-base": BASE,
        "ensemble-distilled": tuple(f"{family}-distilled" for family in FAMILIES),
        "ensemble-electra": ("electra-of-albert", "electra-of-roberta", "electra-distilled"),
    }
)
"""Rows 10 to 12."""
ROWS = (*LARGE, *BASE, *STUDENTS, *ENSEMBLES)


Models = Annotated[tuple[str, ...], listed(str, "albert-base-v2,roberta-base,google/electra-base-discriminator")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """The options of `train sweep cerberus-models`."""

    transfer: DataSpec | None = None
    """Questions of TANDA's first step, which is ASNQ in the paper, as FORMAT:PATH (default: there is one step, on
    --train, as for the paper's column ASNQ)."""
    transfer_dev: DataSpec | None = None
    """Questions to choose the weights of the first step by, as FORMAT:PATH."""
    train: Annotated[DataSpec, Parameter(help=data_help("Questions to train on"))]
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    large: Models = ("albert-xxlarge-v2", "roberta-large", "google/electra-large-discriminator")
    """Paths or hub ids of the large ALBERT, RoBERTa and ELECTRA, with commas."""
    base: Models = ("albert-base-v2", "roberta-base", "google/electra-base-discriminator")
    """Paths or hub ids of their base sizes, with commas."""
    rows: Annotated[tuple[str, ...], row_names(ROWS, "electra-base,cerberus")] = ROWS
    """Rows, separated by commas (default: all)."""
    teach_options: Words = ""
    """Further options of every `train teach`, as one argument."""
    distil_options: Words = ""
    """Further options of every `train distil`, as one argument."""
    device: Device = "auto"
    table: TableOptions

    @property
    def target(self) -> str:
        """The end of the presets' names: with ASNQ alone, or with a target set after it."""
        return "wikiqa" if self.transfer else "asnq"

    @property
    def models(self) -> Mapping[str, str]:
        """The encoders by the names of the plain models."""
        return dict(zip((*LARGE, *BASE), (*self.large, *self.base), strict=True))


def cerberus_models(*, options: ModelsOptions) -> Path:
    """Train large models, base models, students, ensembles, Hydra and CERBERUS, and compare (CERBERUS table 2).

    Plain models are trained by `train teach`, on --transfer and then on --train. Students start from a base model
    after the first step, and learn on --train from the scores of finished models: of ELECTRA-large, of one large model
    for each head (cerberus), or of three ELECTRA-base with different seeds (hydra). Ensembles weigh three models by MAP
    on --dev. Large models are trained with the first seed alone, all others with each seed. Runs are in
    `OUT/<row>-<seed>`, and the evaluations of each test set in `OUT/systems/<row>/<seed>`. Finished runs are not
    repeated: a killed command continues when it is repeated, and rows, seeds and tests can be added later. Writes
    OUT/table.md, in the form of `results table`, with the row cerberus as the baseline. For example:

        cerberank train sweep cerberus-models
          --transfer asnq:train.tsv --transfer-dev "asnq:dev.tsv?questions=unique.dev"
          --train wikiqa:WikiQA-train.tsv --dev wikiqa:WikiQA-dev.tsv --test wikiqa:WikiQA-test.tsv
          --teach-options "--evaluate-every 5000 --patience 2" --out runs/table2

    Args:
        options: Options.
    """
    table = options.table
    # Everything that can be refused is refused before anything is written.
    if (options.transfer is None) != (options.transfer_dev is None):
        raise UsageError("--transfer and --transfer-dev go together.")
    if len(options.large) != len(FAMILIES) or len(options.base) != len(FAMILIES):
        raise UsageError("--large and --base are three models each: an ALBERT, a RoBERTa and an ELECTRA.")
    runs = _Runs(options)
    for step in ("asnq", options.target):
        job_of("teach", *runs.teaching(step, "MODEL"), "--out", table.out).check()
    for student in STUDENTS.values():
        job_of("distil", *runs.learning(student, "MODEL"), "--out", table.out)
    data = {"transfer": options.transfer, "train": options.train, "dev": options.dev}
    Bound(table.out, settings_of(options) | data_contents(data)).begin()

    def train(row: str, seed: int) -> Evaluation | None:
        return None if row in LARGE and seed != table.seeds[0] else runs.evaluation(row, seed, table)

    rows = {row: partial(train, row) for row in ROWS if row in options.rows}
    return fill_table(table, rows, report=lambda: write_table(table, ROWS, measures="P@1 AP RR", baseline="cerberus"))


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of a table; each makes what it needs."""

    options: ModelsOptions

    def folder(self, name: str, seed: int) -> Path:
        """The folder of a run."""
        return self.options.table.out / f"{name}-{seed}"

    def evaluation(self, row: str, seed: int, table: TableOptions) -> Evaluation:
        """Train a row, and return its evaluation for a table."""
        device = self.options.device
        if row in ENSEMBLES:
            return partial(self.combine, row, seed)
        if row in STUDENTS:
            return checkpoint_evaluation(table, self.student(row, seed), device=device)
        return teacher_evaluation(table, self.plain(row, seed), device=device)

    def teaching(self, step: str, base: object) -> list[object]:
        """The options of a `train teach`: of the first step (asnq), or of the second one."""
        options = self.options
        is_first = step == "asnq" and options.transfer
        data = (options.transfer, options.transfer_dev) if is_first else (options.train, options.dev)
        words = ["--recipe", f"cerberus/teacher-{step}", "--base", base, "--train", data[0], "--dev", data[1]]
        return [*words, "--device", options.device, *shlex.split(options.teach_options)]

    def start(self, name: str, seed: int) -> object:
        """The model that is adapted to the target: after the first step, or the encoder itself if there is none."""
        model = self.options.models[name]
        if self.options.transfer is None:
            return model
        return trained(self.folder(f"{name}-transfer", seed), "teach", *self.teaching("asnq", model), "--seed", seed)

    def plain(self, name: str, seed: int) -> Path:
        """The folder of a model that learns from labels alone."""
        folder = self.folder(name, seed)
        if is_finished(folder, "teach"):
            return folder
        words = self.teaching(self.options.target, self.start(name, seed))
        return trained(folder, "teach", *words, "--seed", seed)

    def learning(self, student: Student, base: object) -> list[object]:
        """The options of a student's `train distil`, but for its teachers."""
        options = self.options
        preset = f"distilled-{options.target}" if len(student.teachers) == 1 else options.target
        words = ["--recipe", f"cerberus/{preset}", "--base", base, "--device", options.device, "--forms", "none"]
        return [*words, "--train", options.train, "--dev", options.dev, *shlex.split(options.distil_options)]

    def student(self, row: str, seed: int) -> Path:
        """The checkpoint of a student."""
        options, student, folder = self.options, STUDENTS[row], self.folder(row, seed)
        if not is_finished(folder, "distil"):
            words = self.learning(student, self.start(student.start, seed))
            for number, teacher in enumerate(student.teachers):
                again = student.teachers[:number].count(teacher)
                words += ["--teacher", str(self.scores(teacher, options.table.seeds[0] + again))]
            trained(folder, "distil", *words, "--seed", seed)
        return result_of(folder, "distil")

    def scores(self, teacher: str, seed: int) -> Path:
        """The cache of a model's scores of the training data."""
        options, model = self.options, self.plain(teacher, seed)
        cache = options.table.out / "scores" / model.name
        run_command("data score", cache, "--teacher", model, "--data", options.train, "--device", options.device)
        return cache

    def combine(self, row: str, seed: int, test: str, path: Path) -> None:
        """Write the per-question file of an ensemble, whose weights are chosen on dev."""
        table, words = self.options.table, list[object]()
        dev = replace(table, test=(self.options.dev,), out=table.out / "dev", sample=None)
        for member in ENSEMBLES[row]:
            for each in (table, dev):
                evaluate_run(each, member, seed, self.evaluation(member, seed, each))
            words += ["--dev", dev.per_question(member, seed, self.options.dev)]
            words += ["--test", table.per_question(member, seed, test)]
        run_command("results ensemble", *words, "--per-question", path)
