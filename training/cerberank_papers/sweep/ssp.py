"""`cerberank train sweep ssp`: an encoder with and without context and SSP's objectives, as in SSP's table 1."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_args

from cyclopts import Parameter

from cerberank_models.checkpoint.bound import Bound
from cerberank_models.commands.options import Device
from cerberank_models.commands.values import DataSpec, data_help
from cerberank_papers.pretraining.examples import Objective
from cerberank_papers.sweep.sweep_runs import (
    Evaluation,
    TableOptions,
    Words,
    contents,
    fill_table,
    job_of,
    row_names,
    settings_of,
    teacher_evaluation,
    trained,
    write_table,
)

OBJECTIVES: tuple[str, ...] = get_args(Objective)
ROWS = ("no-context", "context", *OBJECTIVES)
"""The encoder as it is, without and with context, and with context after each kind of further pre-training."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SspOptions:
    """The options of `train sweep ssp`."""

    target: Literal[
        "wikiqa-roberta", "wikiqa-electra", "asnq-roberta", "asnq-electra", "newsas2-roberta", "newsas2-electra"
    ]
    """Presets of fine-tuning: ssp/fine-tune-TARGET, and ssp/no-context-TARGET for the row without context."""
    base: str
    """Path or hub id of the encoder, RoBERTa-base or ELECTRA-base in the paper."""
    generator: str | None = None
    """Path or hub id of ELECTRA's generator, for pre-training (default: a new, narrow one)."""
    documents: str
    """Documents to pre-train on, as `train pretrain --documents`."""
    dev_documents: str
    """Held-out documents, as `train pretrain --dev`."""
    train: Annotated[DataSpec, Parameter(help=data_help("Questions to fine-tune on"))]
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    rows: Annotated[tuple[str, ...], row_names(ROWS, "context,dpc")] = ROWS
    """Rows, separated by commas (default: all)."""
    pretrain_options: Words = ""
    """Further options of every `train pretrain`, as one argument."""
    teach_options: Words = ""
    """Further options of every `train teach`, as one argument."""
    device: Device = "auto"
    table: TableOptions


def ssp(*, options: SspOptions) -> Path:
    """Pre-train an encoder by SSP's objectives, fine-tune it with context, and compare (SSP table 1).

    A row with an objective begins with a `train pretrain` in `OUT/pretrain-<row>`, which all seeds share. Each row and
    seed is a `train teach` in `OUT/<row>-<seed>`, of which `import` makes a checkpoint, and an `evaluate` of each test
    set, in `OUT/systems/<row>/<seed>`. Finished runs are not repeated: a killed command continues when it is repeated,
    and rows, seeds and tests can be added later. Writes OUT/table.md, in the form of `results table`, over the
    questions with both labels (strict), with the row context as the baseline. The paper has five seeds:

        cerberank train sweep ssp --target wikiqa-electra
          --base google/electra-base-discriminator --generator google/electra-base-generator
          --documents text:articles --dev-documents text:held-out
          --train wikiqa:WikiQA-train.tsv --dev wikiqa:WikiQA-dev.tsv --test wikiqa:WikiQA-test.tsv
          --seeds 1,2,3,4,5 --out runs/ssp

    Args:
        options: Options.
    """
    table = options.table
    # Everything that can be refused is refused before anything is written.
    for row in options.rows:
        job_of("teach", *_fine_tuning(options, row, options.base), "--out", table.out).check()
        if row in OBJECTIVES:
            job_of("pretrain", *_pretraining(options, row), "--out", table.out).check()
    read = contents(options.base, {"train": options.train, "dev": options.dev})
    Bound(table.out, settings_of(options) | read).begin()

    def train(row: str, seed: int) -> Evaluation:
        base = options.base
        if row in OBJECTIVES:
            base = str(trained(table.out / f"pretrain-{row}", "pretrain", *_pretraining(options, row)))
        words = _fine_tuning(options, row, base)
        teacher = trained(table.out / f"{row}-{seed}", "teach", *words, "--seed", seed)
        return teacher_evaluation(table, teacher, device=options.device)

    def report() -> None:
        write_table(table, ROWS, measures="AP P@1", baseline="context", subset="strict")

    return fill_table(table, {row: partial(train, row) for row in dict.fromkeys(options.rows)}, report=report)


def _pretraining(options: SspOptions, row: str) -> list[str]:
    """The options of a row's `train pretrain`."""
    words = ["--recipe", f"ssp/pretrain-{row}", "--base", options.base, "--device", options.device]
    words += ["--generator", options.generator] if options.generator else []
    words += ["--documents", options.documents, "--dev", options.dev_documents]
    return [*words, *shlex.split(options.pretrain_options)]


def _fine_tuning(options: SspOptions, row: str, base: str) -> list[str]:
    """The options of a row's `train teach`."""
    kind = "no-context" if row == "no-context" else "fine-tune"
    words = ["--recipe", f"ssp/{kind}-{options.target}", "--base", base, "--device", options.device]
    return [*words, "--train", options.train, "--dev", options.dev, *shlex.split(options.teach_options)]
