"""The options of `cerberank evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from cerberank_models.commands.backend_options import add_backend_options, add_windows_option
from cerberank_models.commands.ratios import ratios
from cerberank_training.data import Subset
from cerberank_training.evaluation.measures import Measure, MeasureNameError, parse_measures


def measures(text: str) -> tuple[Measure, ...]:
    """A list of measures: a `type` for argparse, whose error names the one that is wrong.

    >>> [str(measure) for measure in measures("AP nDCG@10")]
    ['AP', 'nDCG@10']
    """
    try:
        return parse_measures(text)
    except MeasureNameError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def evaluate_parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of the verb."""
    parser = argparse.ArgumentParser(prog="cerberank evaluate", description=description)
    parser.add_argument("--data", metavar="FORMAT:PATH", help="such as wikiqa:WikiQA-test.tsv; not needed with --qrels")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--checkpoint", type=Path, help="folder (default: the bundled one)")
    source.add_argument(
        "--sequence",
        type=Path,
        nargs="+",
        help="folders of independent models, each of which reranks the candidates that the one before kept",
    )
    source.add_argument(
        "--text-ranker", type=Path, help="a folder that `cerberank train pairwise` wrote; in torch, fp32"
    )
    source.add_argument("--url", help="evaluate the service at this address instead")
    source.add_argument(
        "--scores",
        type=Path,
        help='evaluate given scores: a cache of `cerberank data score`, or a line {"id", "scores": [...]} a question',
    )
    source.add_argument(
        "--run", type=Path, help="evaluate a TREC run of the candidates of --data, or of any documents with --qrels"
    )
    parser.add_argument("--qrels", type=Path, help="the judgements of --run, in the place of --data")
    add_backend_options(parser)
    add_windows_option(parser)
    parser.add_argument("--against", help="another precision: report top-1 agreement and MAP difference")
    parser.add_argument("--subset", choices=get_args(Subset), default="clean", help="questions that the table shows")
    parser.add_argument("--schedule", action="append", type=ratios, default=[], metavar="A,B", help="drop ratios")
    parser.add_argument(
        "--minimum", type=int, default=1, help="least number of candidates that these schedules leave, as drop_minimum"
    )
    parser.add_argument("--sample", type=int, help="this many questions of the subset, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--teacher",
        action="append",
        type=Path,
        default=[],
        help="a teacher's per-question file, or a cache of `cerberank data score`: report agreement",
    )
    parser.add_argument(
        "--measures",
        type=measures,
        default=(),
        metavar="NAMES",
        help="what the table shows, by the names of ir_measures: 'AP nDCG@10 RR@10 R(rel=2)@100 Success@5'",
    )
    parser.add_argument("--trec-run", type=Path, help="write a TREC run of the questions of --subset here")
    parser.add_argument("--trec-qrels", type=Path, help="write the labels of these questions here, as TREC qrels")
    parser.add_argument("--ranking", default="final", help="what --trec-run holds, such as `exit 1` (default: final)")
    parser.add_argument("--tag", help="the run's tag (default: the name of what is evaluated, and --ranking)")
    parser.add_argument("--json", type=Path, help="write the figures of all subsets here")
    parser.add_argument("--per-question", type=Path, help="write one JSON line a question here")
    parser.add_argument("--plot", type=Path, help="write MAP against cost here, as PNG")
    return parser
