"""What `cerberank evaluate` ranks with: a checkpoint, several, a text ranker, a service, given scores, a TREC run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.commands.backend_options import backend_options
from cerberank_models.drop import DropPolicy, RatioSchedule
from cerberank_models.ranker import Ranker
from cerberank_models.windows import windowing_of
from cerberank_training.data import Question, read_questions, sampled, subset
from cerberank_training.evaluation.evaluate import policy_name, variant_costs
from cerberank_training.evaluation.sources.rankings import (
    RankedQuestion,
    given_rankings,
    precision_rankings,
    ranker_rankings,
    service_rankings,
    teacher_rankings,
)
from cerberank_training.evaluation.sources.sequence import sequence_costs, sequence_rankings
from cerberank_training.evaluation.trec_files.reading import judged_run, run_rankings
from cerberank_training.evaluation.trec_files.writing import check_ids
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Rankings that are computed as they are asked for."""

    questions: int
    costs: dict[str, float]
    """By variant; empty where they are unknown."""
    rankings: Iterator[RankedQuestion]
    data: str
    """What the questions come from."""
    note: str = ""
    """A sentence that a reader of the figures needs beside them, or nothing."""


def open_source(arguments: argparse.Namespace) -> Source:
    """What the verb's arguments name. Raises ValueError for options that do not go together, before reading."""
    _check_run(arguments)
    if arguments.windows and (arguments.scores or arguments.run or arguments.text_ranker):
        raise ValueError("--windows is of a checkpoint that reads pairs, or of a service")
    if arguments.qrels:
        read = judged_run(arguments.run, arguments.qrels)
        by_id = {each.question.id: each for each in read.ranked}
        chosen = sampled(
            (each.question for each in read.ranked), size=arguments.sample, seed=arguments.seed, name=arguments.subset
        )
        rankings = iter([by_id[question.id] for question in chosen])
        return Source(questions=len(chosen), costs={}, rankings=rankings, data=str(arguments.qrels), note=read.note())
    questions = sampled(
        read_questions(arguments.data), size=arguments.sample, seed=arguments.seed, name=arguments.subset
    )
    if arguments.trec_run or arguments.trec_qrels:
        check_ids(questions)
    costs, rankings, note = _rankings(arguments, questions)
    return Source(questions=len(questions), costs=costs, rankings=rankings, data=arguments.data, note=note)


def source_name(arguments: argparse.Namespace) -> str:
    """A short name of what is evaluated."""
    if arguments.url:
        return "service"
    if arguments.sequence:
        return "-".join(path.resolve().name for path in arguments.sequence)
    named = arguments.run or arguments.scores or arguments.text_ranker or arguments.checkpoint or default_checkpoint()
    path = Path(named).resolve()
    return path.name if path.is_dir() else path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def _check_run(arguments: argparse.Namespace) -> None:
    if arguments.qrels and not arguments.run:
        raise ValueError("--qrels are the judgements of a --run")
    if bool(arguments.data) == bool(arguments.qrels):
        raise ValueError("the questions come from --data, or from --qrels with --run: one of them is needed")
    if arguments.qrels and arguments.teacher:
        raise ValueError("--teacher compares candidates with texts, which --qrels have not: give --data")
    if arguments.run and (arguments.schedule or arguments.against or arguments.backend or arguments.precision):
        raise ValueError("a run is scored already: it goes with no option of a checkpoint")


def _rankings(
    arguments: argparse.Namespace, questions: list[Question]
) -> tuple[dict[str, float], Iterator[RankedQuestion], str]:
    """The costs by variant, empty where they are unknown, the rankings, and a note for the reader."""
    if arguments.url:
        if arguments.against:
            raise ValueError("--against compares a checkpoint's precisions: it does not go with --url")
        schedule = arguments.schedule[0] if arguments.schedule else None
        return {}, service_rankings(arguments.url, questions, schedule=schedule, windows=arguments.windows), ""
    if arguments.scores or arguments.run:
        return {}, _scored(arguments, questions), ""
    if arguments.text_ranker:
        if arguments.schedule or arguments.against or arguments.backend or arguments.precision:
            raise ValueError("a text ranker has one stage, and runs on torch in fp32")
        from cerberank_training.evaluation.sources.text_ranker import folder_rankings  # noqa: PLC0415 - needs torch

        return {}, folder_rankings(arguments.text_ranker, questions, device=arguments.device), ""
    options = backend_options(arguments)
    form = asdict(options) | {"windowing": windowing_of(arguments.windows)}
    asked = subset(questions, arguments.subset)
    if not asked:
        raise ValueError(f"no question is in the subset {arguments.subset!r}")
    sizes = [len(question.candidates) for question in asked]
    policies: list[DropPolicy] = [RatioSchedule(ratios, arguments.minimum) for ratios in arguments.schedule]
    if arguments.sequence:
        models = [read_checkpoint(path) for path in arguments.sequence]
        rankings = sequence_rankings(models, questions, **form, policies=policies)
        return sequence_costs(models, policies, sizes), rankings, ""
    checkpoint = read_checkpoint(arguments.checkpoint or default_checkpoint())
    if arguments.against:
        rankings = precision_rankings(checkpoint, questions, **form, against=arguments.against)
        return {"final": 1.0, arguments.against: 1.0}, rankings, ""
    note = ""
    if any(checkpoint.config.schedule):
        default = checkpoint.config.drop_policy()
        policies = [default, *(policy for policy in policies if policy != default)]
        note = f"`{policy_name(default)}` is the checkpoint's default schedule: the service answers with it."
    costs = variant_costs(checkpoint.config, policies, sizes)
    ranker = Ranker.load(checkpoint.path, device=options.device, backend=options.kind, precision=options.precision)
    return costs, ranker_rankings(ranker, questions, policies=policies, windowing=form["windowing"]), note


def _scored(arguments: argparse.Namespace, questions: list[Question]) -> Iterator[RankedQuestion]:
    """By scores that stand in a file."""
    if arguments.run:
        return run_rankings(arguments.run, questions)
    if arguments.schedule or arguments.against:
        raise ValueError("--scores are of one stage and one model: they go with neither --schedule nor --against")
    if arguments.scores.is_dir():
        return teacher_rankings(TeacherScoreCache.open(arguments.scores), questions)
    return given_rankings(arguments.scores, questions)
