"""`cerberank train strategies --paper trmd`: train TRMD's systems on the same triples and compare them (TRMD table 2).

Every run is a `train pairwise` and an `evaluate` of each test set in processes of their own, in OUT/<row>-<seed>;
a taught row brings its teachers of the same seed. Finished runs are not repeated, so a killed call resumes when it is
repeated, and rows, seeds and tests can be added later. Writes OUT/table.md and OUT/table.json. Options that are not
listed here are those of `train pairwise`, except for --system, --mono, --bi, --seed and --out; every row has the
same, but for monoBERT, which --mono-options may train longer.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from cerberank_models.checkpoint.atomic import write_bytes, write_json
from cerberank_models.checkpoint.bound import Bound
from cerberank_training.commands import pairwise
from cerberank_training.commands.strategies.runs import (
    VerbError,
    add_table_options,
    contents,
    evaluate_run,
    finished,
    run_verb,
    seeds_of,
)
from cerberank_training.evaluation.trmd_table import ROWS, trmd_content, trmd_table
from cerberank_training.runs.place import check_device
from cerberank_training.students.text_rankers import SYSTEMS

OWN = ("system", "mono", "bi", "seed", "out")
"""The options of `pairwise` that each run has for itself."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments, training = _parser().parse_known_args(argv)
    mono = shlex.split(arguments.mono_options)
    # Parsed here as well, so that an error shows before the first run, and that defaults are recorded.
    own = ["--system", "mono", "--out", str(arguments.out)]
    shared = vars(pairwise.parser().parse_args([*training, *own]))
    differing = vars(pairwise.parser().parse_args([*training, *mono, *own]))
    try:
        words = [word.partition("=")[0] for word in (*training, *mono)]
        if given := [name for name in OWN if f"--{name}" in words]:
            raise ValueError(f"--{given[0]} is set by the row, it cannot be given")
        check_device(shared["device"])
        recorded = {name: value for name, value in shared.items() if name not in (*OWN, "device")}
        recorded |= {f"mono's {name}": value for name, value in differing.items() if value != shared[name]}
        recorded["sample"] = arguments.sample
        read = contents(shared["base"], {name: shared[name] for name in ("train", "dev")})
        Bound(arguments.out, recorded | read).begin()
        for seed in seeds_of(arguments):
            for row in _with_teachers(arguments.rows):
                _train(row, seed, arguments.out, [*training, *mono] if row == "mono" else training)
                source = ("--text-ranker", arguments.out / f"{row}-{seed}" / "ranker", "--device", shared["device"])
                for test in arguments.test:
                    evaluate_run(arguments.out / f"{row}-{seed}", test, source=source, sample=arguments.sample)
                _report(arguments, recorded)
    except (VerbError, ValueError, OSError) as error:
        print(f"cerberank train strategies: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print((arguments.out / "table.md").read_text(encoding="utf-8"))  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank train strategies --paper trmd", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="which systems (default: all)")
    parser.add_argument("--mono-options", default="", help="options of `pairwise` for monoBERT alone, in one argument")
    add_table_options(parser)
    return parser


def _with_teachers(rows: list[str]) -> list[str]:
    """The rows and the teachers that they learn from, in the table's order."""
    taught = [SYSTEMS[row] for row in rows if SYSTEMS[row].taught]
    wanted = {*rows, *(teacher for system in taught for teacher in ("mono", system.token_ranker))}
    return [row for row in ROWS if row in wanted]


def _train(row: str, seed: int, out: Path, training: list[str]) -> None:
    folder = out / f"{row}-{seed}"
    if (folder / "ranker").is_dir():
        return
    system, teachers = SYSTEMS[row], {}
    if system.taught:
        teachers = {"mono": "mono", "bi": system.token_ranker}
    run_verb(
        "train pairwise",
        *training,
        *("--system", row, "--seed", seed, "--out", folder),
        *(part for role, name in teachers.items() for part in (f"--{role}", out / f"{name}-{seed}" / "ranker")),
    )


def _report(arguments: argparse.Namespace, recorded: dict[str, object]) -> None:
    """Write the tables of all finished runs, not only of those that this call added."""
    sections, content = [], {}
    for test in arguments.test:
        found = {row: finished(arguments.out, row, test) for row in ROWS}
        results = {row: by_seed for row, by_seed in found.items() if by_seed}
        content[test] = trmd_content(results)
        form, _, name = test.partition(":")
        drawn = "" if arguments.sample is None else f", at most {arguments.sample} drawn with seed 0"
        counts = f"{content[test]['questions']:,} questions, {content[test]['pairs']:,} pairs{drawn}"
        sections.append(f"**{form}:{Path(name).name}**: {counts}\n\n{trmd_table(results)}\n")
    write_bytes(arguments.out / "table.md", "\n".join(sections).encode())
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in recorded.items()}
    write_json(arguments.out / "table.json", {"settings": settings, "tests": content})
