"""`cerberank eval compare A.jsonl B.jsonl`: is A better than B, question by question, or is it chance?

A and B are per-question files of `cerberank evaluate` or `cerberank eval ensemble` over the same candidates, or of runs
(`evaluate --run --qrels`) with the same judgements.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from cerberank_models.checkpoint.atomic import write_json
from cerberank_training.commands.evaluation.options import measures
from cerberank_training.data import Subset
from cerberank_training.evaluation.compare import SIGNIFICANCE, RankingComparison, compare
from cerberank_training.evaluation.per_question import check_comparable, read_records
from cerberank_training.evaluation.report import table


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    ranking_b = arguments.ranking_b or arguments.ranking
    try:
        first = read_records(arguments.a, ranking=arguments.ranking)
        second = read_records(arguments.b, ranking=ranking_b)
        check_comparable((arguments.a, first), (arguments.b, second))
        result = compare(
            first,
            second,
            ranking_a=arguments.ranking,
            ranking_b=ranking_b,
            subset=arguments.subset,
            measures=arguments.measures,
        )
        print(markdown(result))  # noqa: T201
        if arguments.json:
            write_json(arguments.json, asdict(result))
    except (ValueError, OSError) as error:
        print(f"cerberank eval compare: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank eval compare", description=__doc__)
    parser.add_argument("a", type=Path, metavar="A")
    parser.add_argument("b", type=Path, metavar="B")
    parser.add_argument("--ranking", default="final", help="such as `exit 1` or `drop 0.3,0.3` (default: final)")
    parser.add_argument("--ranking-b", help="the ranking of B (default: the same as A's)")
    parser.add_argument("--subset", choices=get_args(Subset), default="clean")
    parser.add_argument(
        "--measures",
        type=measures,
        default=(),
        metavar="NAMES",
        help="compare by these, named as in ir_measures, such as 'AP nDCG@10 R@100' (default: the metrics of evaluate)",
    )
    parser.add_argument("--json", type=Path, help="write the comparison here")
    return parser


def markdown(result: RankingComparison) -> str:
    """A table with a row a metric, and the correlation of the orders."""
    header = ["metric", "A", "B", "A - B", "p (Wilcoxon)", "p (Student)", "wins / ties / losses"]
    rows = [
        [
            name,
            f"{row.mean_a:.2f}",
            f"{row.mean_b:.2f}",
            f"{row.difference:+.2f}",
            f"{row.p_value:.2g}",
            f"{row.student_p_value:.2g}",
            f"{row.wins} / {row.ties} / {row.losses}",
        ]
        for name, row in result.metrics.items()
    ]
    correlation = "undefined" if result.spearman is None else f"{result.spearman:.3f}"
    note = (
        f"Spearman correlation of the orders, mean of {result.spearman_questions} questions: {correlation}; "
        f"p < {SIGNIFICANCE} in {result.spearman_significant} of them."
    )
    return f"{table(header, rows)}\n\n{result.questions} questions. {note}"
