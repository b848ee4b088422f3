"""`cerberank train sweep trmd`: the systems of TRMD's table 2 on the same triples, of one split or of all folds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_models.checkpoint.bound import Bound, differences, plain
from cerberank_models.commands.values import DataSpec, Integers, replaced
from cerberank_models.output import UsageError
from cerberank_papers.pairwise.settings import SYSTEMS, PairwiseOptions
from cerberank_papers.sweep.sweep_runs import (
    EVALUATIONS,
    Evaluation,
    Rest,
    TableOptions,
    contents,
    fill_table,
    job_of,
    ranker_evaluation,
    recorded,
    result_of,
    row_names,
    say_table,
    trained,
    write_table,
)

ROWS = (
    *("mono", "twin", "tr-twin", "trmd-twin", "colbert", "tr-colbert", "trmd-colbert"),
    *("trmd-joint-twin", "trmd-joint-colbert"),
)
"""The systems of the table; teachers come before their students."""


FOLD = "{fold}"
"""The place of a fold's number in the options that name data."""
MEASURES = "P@20 nDCG@5 nDCG@20 AP RR P@1 nDCG@10"
"""The paper's three, and those of the other papers."""
OWN = ("system", "mono", "bi", "seed", "out")
"""The options of `train pairwise` that each run has for itself."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrmdOptions:
    """The options of `train sweep trmd`."""

    rows: Annotated[tuple[str, ...], row_names(ROWS, "twin,trmd-twin")] = ROWS
    """Systems, separated by commas (default: all)."""
    mono_options: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Further options of `train pairwise` for monoBERT only, as one argument."""
    folds: Integers = ()
    """Folds to train on one after the other, such as 1,2,3,4,5; each takes the place of {fold} in --train, --dev and
    --test, and the table has the questions of all of them."""
    table: TableOptions


def trmd(*training: Rest, options: TrmdOptions) -> Path:
    """Train TRMD's systems on the same triples and compare them (TRMD table 2).

    Every run is a `train pairwise` in `OUT/<row>-<seed>`, and an `evaluate` of each test set, in
    `OUT/systems/<row>/<seed>`. The teachers that a row needs are trained with the same seed. Finished runs are not
    repeated: a killed command continues when it is repeated, and rows, seeds and tests can be added later. Writes
    OUT/table.md, in the form of `results table`, with monoBERT as the baseline; for another one call `results table
    OUT/systems/trmd-twin OUT/systems/tr-twin --baseline tr-twin`. All other options are passed to `train pairwise`,
    the same for every row, except for --system, --mono, --bi, --seed and --out. Only monoBERT has further ones,
    --mono-options, for example to train longer:

        cerberank train sweep trmd --base bert-base-uncased --train jsonl:train.jsonl
          --dev jsonl:dev.jsonl --steps 20000 --mono-options "--steps 40000"
          --test jsonl:test.jsonl --seeds 1,2,3 --out runs/trmd

    With --folds there is such a folder for each fold, OUT/fold-1 and so on, and OUT has the joined evaluations:

        data="trec:robust04?run=bm25.run&qrels={fold}"
        cerberank train sweep trmd --recipe trmd/robust04 --base bert-base-uncased
          --train "$data-train.qrels" --dev "$data-dev.qrels" --test "$data-test.qrels"
          --folds 1,2,3,4,5 --out runs/trmd

    Args:
        training: Options of `train pairwise`.
        options: Options.
    """
    if not options.folds:
        return _fill(training, options)
    table, folds = options.table, list(dict.fromkeys(options.folds))
    if not all(FOLD in test for test in table.test):
        raise UsageError(f"--test has no {FOLD}, whose place the number of each fold takes.")
    for fold in folds:
        _fill([_of_fold(word, fold) for word in training], replace(options, table=_table_of_fold(table, fold)))
    # Each question is tested in one fold: a row's file has those of all folds.
    for row, seed, test in product(_with_teachers(options.rows), table.seeds, table.test):
        files = (_table_of_fold(table, fold).per_question(row, seed, _of_fold(test, fold)) for fold in folds)
        write_bytes(table.per_question(row, seed, test), b"".join(file.read_bytes() for file in files))
    _report(table)
    return say_table(table.out)


def _of_fold(text: str, fold: int) -> str:
    return text.replace(FOLD, str(fold))


def _table_of_fold(table: TableOptions, fold: int) -> TableOptions:
    """The table of a fold, in a folder of its own."""
    tests = tuple(DataSpec(_of_fold(test, fold)) for test in table.test)
    return replace(table, test=tests, out=table.out / f"fold-{fold}")


def _fill(training: Sequence[str], options: TrmdOptions) -> Path:
    """Train and evaluate the rows of one table."""
    mono, table = shlex.split(options.mono_options), options.table
    names = [word.partition("=")[0] for word in (*training, *mono)]
    if refused := [name for name in OWN if f"--{name}" in names]:
        raise UsageError(f"--{refused[0]} is set by the row, it cannot be given.")
    # Read here as well, so that an error shows before the first run, and that defaults are recorded.
    longer = replaced(training, mono)
    shared, of_mono = (_options_of_run(words, table) for words in (training, longer))

    # The folder goes on with the same settings and content alone.
    differing = differences(plain(recorded(shared)), plain(recorded(of_mono)))
    bound = recorded(shared) | {f"mono's {name}": value for name, _, value in differing} | {"sample": table.sample}
    read = contents(shared.base, {"train": shared.train, "dev": shared.dev})
    Bound(table.out, bound | read).begin()

    def train(row: str, seed: int) -> Evaluation:
        own: list[object] = ["--system", row, "--seed", seed]
        if SYSTEMS[row].taught:
            for role, name in (("--mono", "mono"), ("--bi", SYSTEMS[row].token_ranker)):
                own += [role, result_of(table.out / f"{name}-{seed}", "pairwise")]
        words = [*(longer if row == "mono" else training), *own]
        ranker = result_of(trained(table.out / f"{row}-{seed}", "pairwise", *words), "pairwise")
        return ranker_evaluation(table, "--text-ranker", ranker, "--device", shared.run.place)

    rows = {row: partial(train, row) for row in _with_teachers(options.rows)}
    return fill_table(table, rows, report=partial(_report, table))


def _options_of_run(words: Sequence[str], table: TableOptions) -> PairwiseOptions:
    """The options of a `train pairwise`, after its checks."""
    job = job_of("pairwise", *words, "--system", "mono", "--out", table.out)
    job.check()
    options: PairwiseOptions = job.options
    return options


def _with_teachers(rows: Sequence[str]) -> list[str]:
    """The rows and the teachers that they learn from, in the table's order."""
    taught = [SYSTEMS[row] for row in rows if SYSTEMS[row].taught]
    wanted = {*rows, *(teacher for system in taught for teacher in ("mono", system.token_ranker))}
    return [row for row in ROWS if row in wanted]


def _report(table: TableOptions) -> None:
    """Write the table, with the commands that test TRMD's students against the same networks without teachers (TR)."""
    lines = []
    for ranker in ("twin", "colbert"):
        pair = [table.out / EVALUATIONS / f"{kind}-{ranker}" for kind in ("trmd", "tr")]
        if all(folder.is_dir() for folder in pair):
            lines.append(shlex.join(["cerberank", "results", "table", *map(str, pair), "--baseline", f"tr-{ranker}"]))
    more = ["\n    ".join(["TRMD against TR:\n", *lines])] if lines else []
    write_table(table, ROWS, more, measures=MEASURES, baseline="mono")
