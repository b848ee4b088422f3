"""`cerberank evaluate`: figures of a checkpoint, of a service, of given scores, or of a TREC run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cerberank_models.checkpoint.atomic import replacing, write_bytes, write_json
from cerberank_models.commands.options import check_device
from cerberank_models.output import say, say_written
from cerberank_models.progress import progress
from cerberank_models.windows import AS_SERVED
from cerberank_training.commands.evaluation.depths import evaluate_depths
from cerberank_training.commands.evaluation.evaluate_options import EvaluateOptions
from cerberank_training.commands.evaluation.sources import open_source
from cerberank_training.commands.evaluation.trec_output import TrecOutput
from cerberank_training.data import DataError, Question
from cerberank_training.evaluation.agreement import GROUPS, Agreement, Majority, agreement, majority
from cerberank_training.evaluation.first_results import FirstResult, first_result_figures, sentence
from cerberank_training.evaluation.per_question import (
    QuestionRecord,
    Records,
    candidates_hash,
    read_records,
    record,
    write_record,
)
from cerberank_training.evaluation.question_metrics import QuestionMetrics, usual_columns
from cerberank_training.evaluation.report import agreement_markdown, majority_markdown, markdown
from cerberank_training.evaluation.sources.rankings import RankedQuestion, teacher_rankings
from cerberank_training.evaluation.variants import Evaluation, Ranks
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


@dataclass(frozen=True, slots=True)
class Agreements:
    """Heads and the final ranking beside the teachers of --agreement."""

    pairs: dict[tuple[str, str], Agreement] = field(default_factory=dict)
    """By (head, teacher)."""
    majorities: dict[str, Majority] = field(default_factory=dict)
    """By head; empty unless there are several teachers."""

    def tables(self) -> list[str]:
        """In Markdown, without those that would be empty."""
        tables = [agreement_markdown(self.pairs)] if self.pairs else []
        return tables + ([majority_markdown(self.majorities)] if self.majorities else [])


Teacher = Records | TeacherScoreCache
"""Who ranked the questions beforehand: the records of an evaluation, or a cache of `cerberank data score`."""

DEFAULT = EvaluateOptions()


def evaluate(*, options: EvaluateOptions = DEFAULT) -> None:
    """Measure a checkpoint by exit, head and drop schedule, or a service, scores, or a TREC run.

    The figures of all subsets go into --json, every candidate's ranks and scores into --per-question, and one ranking
    into --trec-run, which TREC's programs read. With --depths, the table is of a checkpoint's MAP and P@1 among few and
    among many candidates, and goes into --json and --plot. Files are written completely or not at all.

    Args:
        options: Options.
    """
    (evaluate_depths if options.depths else _evaluate)(options)


def _evaluate(options: EvaluateOptions) -> None:
    teachers: dict[str, Teacher] = {
        path.stem: TeacherScoreCache.open(path) if path.is_dir() else read_records(path) for path in options.agreement
    }
    if len(teachers) < len(options.agreement):
        raise ValueError("teachers are told apart by their files' names, and two are the same")
    form = options.backend.chosen()
    if not (options.url or options.scores or options.run):
        check_device(form.device, "torch" if options.text_ranker else form.kind)
    trec = TrecOutput.of(options)
    source = open_source(options)
    costs = source.costs
    if options.plot and not costs:
        raise ValueError("--plot needs costs, which only a checkpoint has")
    trec.check(costs)
    evaluation, agreements, same_top = Evaluation(options.measures), Agreements(), []
    reading, firsts, largest = Counter[str](), list[FirstResult](), 0
    with replacing(options.per_question) if options.per_question else nullcontext() as file, trec.files():
        for ranked in progress(source.rankings, total=source.questions, unit="question"):
            metrics = evaluation.add(ranked.question, ranked.ranks)
            _add_agreements(agreements, ranked, teachers)
            trec.add(ranked)
            largest = max(largest, len(ranked.question.candidates))
            firsts += [ranked.first] * (ranked.first is not None)
            reading.update(
                candidates=len(ranked.question.candidates), in_windows=ranked.in_windows, truncated=ranked.truncated
            )
            if options.against:
                same_top.append(len({int(np.argmin(ranks)) for ranks in ranked.ranks.values()}) == 1)
            if file is not None:
                write_record(file, _record(ranked, metrics))
        # Within the block, so that an empty subset leaves no file either.
        shown = evaluation.figures(options.subset)
    columns = {name: name for name in map(str, options.measures)} or usual_columns(largest)
    say(markdown(shown, costs, columns))
    if evaluation.without_positive and options.subset != "raw":
        say(f"{evaluation.without_positive} questions without a positive are not in the means.")
    first_figures = first_result_figures(firsts) if firsts else None
    told = None if first_figures is None else sentence(first_figures)
    for line in filter(None, (told, source.note, _reading(reading, options.windows))):
        say(line)
    if same_top:
        share = 100 * np.mean(same_top)
        say(f"Top-1 agreement of {form.precision} and {options.against}: {share:.1f} %")
    for shown_table in agreements.tables():
        say("\n" + shown_table)
    if options.json:
        write_json(
            options.json,
            _content(options, source.data, evaluation, costs=costs, agreements=agreements, reading=reading)
            | {"first_results": None if first_figures is None else asdict(first_figures)},
        )
    if options.plot:
        from cerberank_training.evaluation.plots import evaluation_plot  # noqa: PLC0415 - matplotlib, only for plots

        title = f"{Path(source.data).name}, {options.subset}"
        write_bytes(options.plot, evaluation_plot(shown, costs, title=title))
    say_written(
        (options.per_question, "ranks, scores and figures of every question"),
        (options.json, "figures of all subsets"),
        (options.plot, "MAP, nDCG@10, P@1 and MRR against cost"),
        (options.trec_qrels, f"labels of the {options.subset} questions"),
        (options.trec_run, trec.summary()),
    )


def _reading(counts: Mapping[str, int], windows: str | None) -> str:
    """The reading of texts that do not fit, in words; empty where all fit."""
    parts = []
    if counts["in_windows"]:
        parts.append(f"{counts['in_windows']:,} were read in windows ({windows or AS_SERVED.combine})")
    if counts["truncated"]:
        parts.append(f"{counts['truncated']:,} were cut")
    return f"Of {counts['candidates']:,} candidates, {' and '.join(parts)}." if parts else ""


def _record(ranked: RankedQuestion, metrics: Mapping[str, QuestionMetrics]) -> QuestionRecord:
    return record(
        ranked.question,
        metrics=metrics,
        ranks=ranked.ranks,
        scores=ranked.scores,
        judgements=ranked.judgements,
    )


def _add_agreements(agreements: Agreements, ranked: RankedQuestion, teachers: Mapping[str, Teacher]) -> None:
    labels = np.asarray(ranked.question.labels)
    by_teacher = {name: _ranks_by(teacher, name, ranked.question) for name, teacher in teachers.items()}
    for variant, ranks in ranked.ranks.items():
        if variant != "final" and not variant.startswith("head "):
            continue
        for name, teacher_ranks in by_teacher.items():
            so_far = agreements.pairs.get((variant, name), Agreement())
            agreements.pairs[variant, name] = so_far + agreement(labels, ranks, teacher_ranks)
        if len(by_teacher) > 1:
            added = majority(labels, ranks, list(by_teacher.values()))
            agreements.majorities[variant] = agreements.majorities.get(variant, Majority()) + added


def _ranks_by(teacher: Teacher, name: str, question: Question) -> Ranks:
    """The ranks [n] that a teacher gives the candidates. Raises ValueError when it has not scored them."""
    if isinstance(teacher, TeacherScoreCache):
        return next(teacher_rankings(teacher, [question])).ranks["final"]
    line = teacher.get(question.id)
    if line is None or line.candidates != candidates_hash(question):
        raise DataError(f"teacher {name!r} has not scored these candidates of question {question.id!r}")
    return line.ranks("final")


def _content(
    options: EvaluateOptions,
    data: str,
    evaluation: Evaluation,
    *,
    costs: Mapping[str, float],
    agreements: Agreements,
    reading: Mapping[str, int],
) -> dict[str, Any]:
    return {
        "data": data,
        "sample": options.sample,
        "seed": options.seed,
        "windows": options.windows or AS_SERVED.combine,
        "reading": dict(reading),
        "costs": costs,
        "figures": {
            name: {variant: asdict(row) for variant, row in rows.items()}
            for name, rows in evaluation.all_figures().items()
        },
        "agreement": [
            {"head": head, "teacher": teacher, **asdict(value), "agreement": value.share}
            for (head, teacher), value in agreements.pairs.items()
        ],
        "majority": [
            {
                "head": head,
                **asdict(value),
                **{name: dict(zip(("questions", "right"), value.where(name), strict=True)) for name in GROUPS},
            }
            for head, value in agreements.majorities.items()
        ],
    }
