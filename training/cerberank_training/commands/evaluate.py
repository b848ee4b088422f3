"""`cerberank evaluate`: figures of a checkpoint by exit, head and drop schedule, of a service, or of given scores.

The figures of all subsets go into --json, every candidate's ranks and scores into --per-question. Files are written
completely or not at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import httpx
import numpy as np
from tqdm import tqdm

from cerberank_models.checkpoint.atomic import replacing, write_bytes, write_json
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.backend_options import add_backend_options, backend_options
from cerberank_models.commands.ratios import ratios
from cerberank_models.drop import RatioSchedule
from cerberank_training.data import DataError, Question, Subset, read_questions, sampled, subset
from cerberank_training.evaluation.agreement import Agreement, agreement
from cerberank_training.evaluation.evaluate import Evaluation, Ranks, variant_costs
from cerberank_training.evaluation.per_question import (
    Records,
    candidates_hash,
    read_records,
    record,
    write_record,
)
from cerberank_training.evaluation.report import agreement_markdown, markdown
from cerberank_training.evaluation.sources.rankings import (
    RankedQuestion,
    checkpoint_rankings,
    given_rankings,
    precision_rankings,
    service_rankings,
    teacher_rankings,
)
from cerberank_training.evaluation.sources.sequence import sequence_costs, sequence_rankings
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

Agreements = dict[tuple[str, str], Agreement]
"""Agreement by (head, teacher)."""
Teacher = Records | TeacherScoreCache
"""Who ranked the questions beforehand: the records of an evaluation, or a cache of `cerberank score`."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        _run(arguments)
    except (ValueError, ArithmeticError, OSError, httpx.HTTPError) as error:
        print(f"cerberank evaluate: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank evaluate", description=__doc__)
    parser.add_argument("--data", required=True, metavar="FORMAT:PATH", help="such as wikiqa:WikiQA-test.tsv")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--checkpoint", type=Path, help="folder (default: the bundled one)")
    source.add_argument(
        "--sequence",
        type=Path,
        nargs="+",
        help="folders of independent models, each of which reranks the candidates that the one before kept",
    )
    source.add_argument("--text-ranker", type=Path, help="a folder that `cerberank pairwise` wrote; in torch, fp32")
    source.add_argument("--url", help="evaluate the service at this address instead")
    source.add_argument(
        "--scores",
        type=Path,
        help='evaluate given scores: a cache of `cerberank score`, or a line {"id", "scores": [...]} a question',
    )
    add_backend_options(parser)
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
        help="a teacher's per-question file, or a cache of `cerberank score`: report agreement",
    )
    parser.add_argument("--json", type=Path, help="write the figures of all subsets here")
    parser.add_argument("--per-question", type=Path, help="write one JSON line a question here")
    parser.add_argument("--plot", type=Path, help="write MAP against cost here, as PNG")
    return parser


def _run(arguments: argparse.Namespace) -> None:
    questions = sampled(
        read_questions(arguments.data), size=arguments.sample, seed=arguments.seed, name=arguments.subset
    )
    teachers: dict[str, Teacher] = {
        path.stem: TeacherScoreCache.open(path) if path.is_dir() else read_records(path) for path in arguments.teacher
    }
    if len(teachers) < len(arguments.teacher):
        raise ValueError("teachers are told apart by their files' names, and two are the same")
    costs, rankings = _source(arguments, questions)
    if arguments.plot and not costs:
        raise ValueError("--plot needs costs, which only a checkpoint has")
    evaluation, agreements, same_top = Evaluation(), Agreements(), []
    with replacing(arguments.per_question) if arguments.per_question else nullcontext() as file:
        for ranked in tqdm(rankings, total=len(questions), unit="question", disable=None):
            metrics = evaluation.add(ranked.question, ranked.ranks)
            _add_agreements(agreements, ranked, teachers)
            if arguments.against:
                same_top.append(len({int(np.argmin(ranks)) for ranks in ranked.ranks.values()}) == 1)
            if file is not None:
                write_record(file, record(ranked.question, metrics=metrics, ranks=ranked.ranks, scores=ranked.scores))
        # Within the block, so that an empty subset leaves no per-question file either.
        shown = evaluation.figures(arguments.subset)
    print(markdown(shown, costs))  # noqa: T201
    if evaluation.without_positive and arguments.subset != "raw":
        print(f"{evaluation.without_positive} questions without a positive are not in the means.")  # noqa: T201
    if same_top:
        share = 100 * np.mean(same_top)
        print(f"Top-1 agreement of {backend_options(arguments).precision} and {arguments.against}: {share:.1f} %")  # noqa: T201
    if agreements:
        print("\n" + agreement_markdown(agreements))  # noqa: T201
    if arguments.json:
        write_json(arguments.json, _content(arguments, evaluation, costs, agreements))
    if arguments.plot:
        from cerberank_training.evaluation.plots import evaluation_plot  # noqa: PLC0415 - matplotlib, only for plots

        title = f"{Path(arguments.data).name}, {arguments.subset}"
        write_bytes(arguments.plot, evaluation_plot(shown, costs, title=title))


def _source(
    arguments: argparse.Namespace, questions: list[Question]
) -> tuple[dict[str, float], Iterator[RankedQuestion]]:
    """The costs by variant, empty where they are unknown, and the rankings."""
    if arguments.url:
        if arguments.against:
            raise ValueError("--against compares a checkpoint's precisions: it does not go with --url")
        schedule = arguments.schedule[0] if arguments.schedule else None
        return {}, service_rankings(arguments.url, questions, schedule=schedule)
    if arguments.scores:
        if arguments.schedule or arguments.against:
            raise ValueError("--scores are of one stage and one model: they go with neither --schedule nor --against")
        if not arguments.scores.is_dir():
            rankings = given_rankings(arguments.scores, questions)
        else:
            rankings = teacher_rankings(TeacherScoreCache.open(arguments.scores), questions)
        return {}, rankings
    if arguments.text_ranker:
        if arguments.schedule or arguments.against or arguments.backend or arguments.precision:
            raise ValueError("a text ranker has one stage, and runs on torch in fp32")
        from cerberank_training.evaluation.sources.text_ranker import folder_rankings  # noqa: PLC0415 - needs torch

        return {}, folder_rankings(arguments.text_ranker, questions, device=arguments.device)
    form = asdict(backend_options(arguments))
    asked = subset(questions, arguments.subset)
    if not asked:
        raise ValueError(f"no question is in the subset {arguments.subset!r}")
    sizes = [len(question.candidates) for question in asked]
    policies = [RatioSchedule(ratios, arguments.minimum) for ratios in arguments.schedule]
    if arguments.sequence:
        models = [read_checkpoint(path) for path in arguments.sequence]
        rankings = sequence_rankings(models, questions, **form, policies=policies)
        return sequence_costs(models, policies, sizes), rankings
    checkpoint = read_checkpoint(arguments.checkpoint or default_checkpoint())
    if arguments.against:
        rankings = precision_rankings(checkpoint, questions, **form, against=arguments.against)
        return {"final": 1.0, arguments.against: 1.0}, rankings
    costs = variant_costs(checkpoint.config, policies, sizes)
    return costs, checkpoint_rankings(checkpoint, questions, **form, policies=policies)


def _add_agreements(agreements: Agreements, ranked: RankedQuestion, teachers: Mapping[str, Teacher]) -> None:
    labels = np.asarray(ranked.question.labels)
    for name, teacher in teachers.items():
        teacher_ranks = _ranks_by(teacher, name, ranked.question)
        for variant, ranks in ranked.ranks.items():
            if variant == "final" or variant.startswith("head "):
                so_far = agreements.get((variant, name), Agreement())
                agreements[variant, name] = so_far + agreement(labels, ranks, teacher_ranks)


def _ranks_by(teacher: Teacher, name: str, question: Question) -> Ranks:
    """The ranks [n] that a teacher gives the candidates. Raises ValueError when it has not scored them."""
    if isinstance(teacher, TeacherScoreCache):
        return next(teacher_rankings(teacher, [question])).ranks["final"]
    line = teacher.get(question.id)
    if line is None or line.candidates != candidates_hash(question):
        raise DataError(f"teacher {name!r} has not scored these candidates of question {question.id!r}")
    return line.ranks("final")


def _content(
    arguments: argparse.Namespace, evaluation: Evaluation, costs: Mapping[str, float], agreements: Agreements
) -> dict[str, Any]:
    return {
        "data": arguments.data,
        "sample": arguments.sample,
        "seed": arguments.seed,
        "costs": costs,
        "figures": {
            name: {variant: asdict(row) for variant, row in rows.items()}
            for name, rows in evaluation.all_figures().items()
        },
        "agreement": [
            {"head": head, "teacher": teacher, **asdict(value), "agreement": value.share}
            for (head, teacher), value in agreements.items()
        ],
    }
