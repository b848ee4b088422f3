"""`cerberank eval table A B C`: several systems on several data sets in one table, tested against a baseline.

Each of A, B and C is a folder of one system, which holds the per-question file of each data set: SET.jsonl, written by
`cerberank evaluate --per-question A/SET.jsonl`. A system of several runs, such as one for each seed, has a folder for
each run, A/RUN/SET.jsonl: a question counts with its mean over the runs. All systems need the same sets, with the same
candidates or judgements.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from cerberank_models.checkpoint.atomic import write_bytes, write_json
from cerberank_training.commands.evaluation.options import measures
from cerberank_training.data import Subset
from cerberank_training.evaluation.measures import parse_measures
from cerberank_training.evaluation.systems.comparison import Family, compare_systems
from cerberank_training.evaluation.systems.folders import read_systems
from cerberank_training.evaluation.systems.rendering import csv_table, latex_table, markdown_table


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (ValueError, OSError) as error:
        print(f"cerberank eval table: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank eval table", description=__doc__)
    parser.add_argument("systems", type=Path, nargs="+", metavar="FOLDER", help="a system's per-question files")
    parser.add_argument(
        "--baseline", metavar="NAME", help="the folder's name of the system that others are tested with"
    )
    parser.add_argument(
        "--measures",
        type=measures,
        default=parse_measures("AP"),
        metavar="NAMES",
        help="a table for each, named as in ir_measures, such as 'AP nDCG@10' (default: AP)",
    )
    parser.add_argument("--ranking", default="final", help="of every file, such as `exit 1` (default: final)")
    parser.add_argument("--subset", choices=get_args(Subset), default="clean")
    parser.add_argument(
        "--holm",
        choices=get_args(Family),
        default="table",
        help="which tests are corrected together: all of a table (default), all systems on one set, or all sets of one "
        "system",
    )
    parser.add_argument("--json", type=Path, help="write all figures and p-values here")
    parser.add_argument("--csv", type=Path, help="write them here, a line for each measure, system and set")
    parser.add_argument("--latex", type=Path, help="write the tables here")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    systems = read_systems(arguments.systems, ranking=arguments.ranking)
    results = [
        compare_systems(
            systems,
            measure,
            baseline=arguments.baseline,
            ranking=arguments.ranking,
            subset=arguments.subset,
            family=arguments.holm,
        )
        for measure in arguments.measures
    ]
    print("\n\n".join(markdown_table(result) for result in results))  # noqa: T201
    if arguments.json:
        tables = [asdict(result) for result in results]
        write_json(arguments.json, {"ranking": arguments.ranking, "subset": arguments.subset, "tables": tables})
    if arguments.csv:
        write_bytes(arguments.csv, csv_table(results).encode())
    if arguments.latex:
        write_bytes(arguments.latex, ("\n\n".join(latex_table(result) for result in results) + "\n").encode())
