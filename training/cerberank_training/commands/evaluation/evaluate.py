"""`cerberank evaluate`: figures of a checkpoint, of a service, of given scores, or of a TREC run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cerberank_models.checkpoint.atomic import replacing, write_json
from cerberank_models.commands.options import check_device
from cerberank_models.output import say, say_written
from cerberank_models.progress import progress
from cerberank_training.commands.evaluation.depths import evaluate_depths
from cerberank_training.commands.evaluation.evaluate_options import EvaluateOptions
from cerberank_training.commands.evaluation.sources import open_source
from cerberank_training.commands.evaluation.trec_output import TrecOutput
from cerberank_training.data import DataError, Question
from cerberank_training.evaluation.agreement import GROUPS, Agreement, Majority, agreement, majority
from cerberank_training.evaluation.evaluate_ranker import Report
from cerberank_training.evaluation.figures import Evaluation
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
from cerberank_training.evaluation.variants import Ranks
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache

Teacher = Records | TeacherScoreCache
"""Ranks of the questions that were made before: the records of an evaluation, or a cache of `cerberank data score`."""


@dataclass(frozen=True, slots=True)
class Agreements:
    """The agreement of heads and the final ranking with the teachers of --agreement."""

    teachers: Mapping[str, Teacher]
    pairs: dict[tuple[str, str], Agreement] = field(default_factory=dict)
    """By (head, teacher)."""
    majorities: dict[str, Majority] = field(default_factory=dict)
    """By head; empty unless there are several teachers."""

    @classmethod
    def open(cls, paths: Sequence[Path]) -> Agreements:
        """With the teachers in these files and folders. Raises ValueError for two of the same name."""
        teachers = {path.stem: TeacherScoreCache.open(path) if path.is_dir() else read_records(path) for path in paths}
        if len(teachers) < len(paths):
            raise ValueError("teachers are told apart by their files' names, and two are the same")
        return cls(teachers)

    def add(self, ranked: RankedQuestion) -> None:
        """Add a question. Raises ValueError when a teacher has not scored it."""
        labels = np.asarray(ranked.question.labels)
        by_teacher = {name: self._ranks(name, ranked.question) for name in self.teachers}
        for variant, ranks in ranked.ranks.items():
            if variant != "final" and not variant.startswith("head "):
                continue
            for name, teacher_ranks in by_teacher.items():
                so_far = self.pairs.get((variant, name), Agreement())
                self.pairs[variant, name] = so_far + agreement(labels, ranks, teacher_ranks)
            if len(by_teacher) > 1:
                added = majority(labels, ranks, list(by_teacher.values()))
                self.majorities[variant] = self.majorities.get(variant, Majority()) + added

    def _ranks(self, name: str, question: Question) -> Ranks:
        """The ranks [n] that a teacher gives the candidates."""
        teacher = self.teachers[name]
        if isinstance(teacher, TeacherScoreCache):
            return next(teacher_rankings(teacher, [question])).ranks["final"]
        line = teacher.get(question.id)
        if line is None or line.candidates != candidates_hash(question):
            raise DataError(f"teacher {name!r} has not scored these candidates of question {question.id!r}")
        return line.ranks("final")

    def tables(self) -> list[str]:
        """In Markdown, without those that would be empty."""
        tables = [agreement_markdown(self.pairs)] if self.pairs else []
        return tables + ([majority_markdown(self.majorities)] if self.majorities else [])

    def content(self) -> dict[str, Any]:
        """The part of --json."""
        return {
            "agreement": [
                {"head": head, "teacher": teacher, **asdict(value), "agreement": value.share}
                for (head, teacher), value in self.pairs.items()
            ],
            "majority": [
                {
                    "head": head,
                    **asdict(value),
                    **{name: dict(zip(("questions", "right"), value.where(name), strict=True)) for name in GROUPS},
                }
                for head, value in self.majorities.items()
            ],
        }


DEFAULT = EvaluateOptions()


def evaluate(*, options: EvaluateOptions = DEFAULT) -> Report:
    """Measure a checkpoint by exit, head and drop schedule, or a service, scores, or a TREC run.

    The figures of all subsets go into --json, every candidate's ranks and scores into --per-question, and one ranking
    into --trec-run, which TREC's programs read. With --depths, the table is of a checkpoint's MAP and P@1 among few and
    among many candidates, and goes into --json. Files are written completely or not at all.

    Args:
        options: Options.
    """
    return evaluate_depths(options) if options.depths else _evaluate(options)


def _evaluate(options: EvaluateOptions) -> Report:
    # Whatever could fail is opened before the first question is scored.
    agreements = Agreements.open(options.agreement)
    form = options.backend.chosen()
    if not (options.url or options.scores or options.run):
        check_device(form.device, "torch" if options.text_ranker else form.kind)
    trec = TrecOutput.of(options)
    source = open_source(options)
    trec.check(source.costs)
    # One pass over the questions adds up every figure; files of single questions are written on the way.
    evaluation, firsts = Evaluation(options.measures), list[FirstResult]()
    reading, largest = Counter[str](), 0
    with replacing(options.per_question) if options.per_question else nullcontext() as file, trec.files():
        for ranked in progress(source.rankings, total=source.questions, unit="question"):
            metrics = evaluation.add(ranked.question, ranked.ranks)
            agreements.add(ranked)
            trec.add(ranked)
            size = len(ranked.question.candidates)
            largest = max(largest, size)
            firsts += [] if ranked.first is None else [ranked.first]
            reading.update(candidates=size, in_windows=ranked.in_windows, truncated=ranked.truncated)
            if file is not None:
                write_record(file, _record(ranked, metrics))
        # Within the block, so that an empty subset leaves no file either.
        shown = evaluation.figures(options.subset)
    # The table, and what its reader has to know.
    first_figures = first_result_figures(firsts) if firsts else None
    say(markdown(shown, source.costs, {str(each): str(each) for each in options.measures} or usual_columns(largest)))
    if evaluation.without_positive and options.subset != "raw":
        say(f"{evaluation.without_positive} questions without a positive are not in the means.")
    notes = [sentence(first_figures)] if first_figures else []
    notes += [" ".join(filter(None, source.notes)), _reading(reading, source.windows)]
    if (speed := source.speed()) is not None:
        notes.append(f"{speed}.")
    for line in filter(None, [*notes, *(f"\n{table}" for table in agreements.tables())]):
        say(line)
    # Files of the whole.
    if options.json:
        content = {
            "data": source.data,
            "sample": options.sample,
            "seed": options.seed,
            "windows": source.windows,
            "reading": dict(reading),
            "costs": source.costs,
            "figures": {
                name: {variant: asdict(row) for variant, row in rows.items()}
                for name, rows in evaluation.all_figures().items()
            },
            **agreements.content(),
            "first_results": None if first_figures is None else asdict(first_figures),
        }
        write_json(options.json, content)
    say_written(
        (options.per_question, "ranks, scores and figures of every question"),
        (options.json, "figures of all subsets"),
        (options.trec_qrels, f"labels of the {options.subset} questions"),
        (options.trec_run, trec.summary()),
    )
    return Report(figures=shown, served=source.served, speed=speed)


def _reading(counts: Mapping[str, int], windows: str | None) -> str:
    """The reading of texts that do not fit, in words; empty where all fit."""
    parts = []
    if counts["in_windows"]:
        parts.append(f"{counts['in_windows']:,} were read in windows ({windows or 'as served'})")
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
