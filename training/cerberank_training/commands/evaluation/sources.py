"""The sources of rankings for `cerberank evaluate`: a checkpoint, several, a text ranker, a service, given scores, a
TREC run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.options import chosen_device
from cerberank_models.config import RankerConfig
from cerberank_models.drop import DropPolicy
from cerberank_models.ranker import Ranker, located
from cerberank_models.windows import windowing_of
from cerberank_training.commands.evaluation.evaluate_options import EvaluateOptions
from cerberank_training.data import Question, read_questions, sampled, subset
from cerberank_training.evaluation.sources.rankings import (
    RankedQuestion,
    file_rankings,
    ranker_rankings,
    service_rankings,
    teacher_rankings,
)
from cerberank_training.evaluation.sources.sequence import sequence_costs, sequence_rankings
from cerberank_training.evaluation.timing import Speed, measure_speed
from cerberank_training.evaluation.trec_files.reading import judged_run, run_rankings
from cerberank_training.evaluation.trec_files.writing import check_ids
from cerberank_training.evaluation.variants import (
    DefaultSchedules,
    Dropping,
    Scorer,
    default_dropping,
    default_name,
    policy_name,
    variant_costs,
)
from cerberank_training.runs.summary import trained_on
from cerberank_training.teachers.teacher_score_cache import TeacherScoreCache


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Rankings that are computed as they are asked for."""

    questions: int
    rankings: Iterator[RankedQuestion]
    data: str
    """The origin of the questions."""
    costs: dict[str, float] = field(default_factory=dict)
    """By variant; empty where they are unknown."""
    served: str = "final"
    """The variant that a checkpoint answers with."""
    speed: Callable[[], Speed | None] = lambda: None
    """Measures the time of a checkpoint, where it is ranked as it is served."""
    notes: tuple[str, ...] = ()
    """Sentences that a reader of the figures needs beside them; some may be empty."""
    windows: str | None = None
    """The reading of texts that do not fit, by the option `windows` or the checkpoint; None where it is not known."""


def open_source(options: EvaluateOptions) -> Source:
    """The source that the options name. Raises ValueError for options that do not go together, before reading."""
    _check_run(options)
    if options.windows and (options.scores or options.run or options.text_ranker):
        raise ValueError("--windows is of a checkpoint that reads pairs, or of a service")
    if options.qrels and options.run:
        return _judged(options, options.run, options.qrels)
    data = options.data or ""
    questions = sampled(read_questions(data), size=options.sample, seed=options.seed, name=options.subset)
    if options.trec_run or options.trec_qrels:
        check_ids(questions)
    source = _ranked(options, questions, data)
    warnings = [text for folder in _models(options) if (text := trained_on(folder, data, read_questions(data)))]
    return replace(source, notes=(*source.notes, *(f"{text}." for text in warnings)))


def _judged(options: EvaluateOptions, run: Path, qrels: Path) -> Source:
    """The documents of a run with the judgements of its qrels."""
    read = judged_run(run, qrels)
    by_id = {each.question.id: each for each in read.ranked}
    every = (each.question for each in read.ranked)
    chosen = sampled(every, size=options.sample, seed=options.seed, name=options.subset)
    rankings = iter([by_id[question.id] for question in chosen])
    return Source(questions=len(chosen), rankings=rankings, data=str(qrels), notes=(read.note(),))


def _models(options: EvaluateOptions) -> tuple[Path, ...]:
    """The folders of the models that rank; none for a service, scores and runs."""
    if options.url or options.scores or options.run:
        return ()
    return options.sequence or (options.text_ranker or options.checkpoint or default_checkpoint(),)


def source_name(options: EvaluateOptions) -> str:
    """A short name of what is evaluated."""
    if options.url:
        return "service"
    if options.sequence:
        return "-".join(path.resolve().name for path in options.sequence)
    named = options.run or options.scores or options.text_ranker or options.checkpoint or default_checkpoint()
    path = Path(named).resolve()
    return path.name if path.is_dir() else path.name.removesuffix(".gz").rpartition(".")[0] or path.name


def _check_run(options: EvaluateOptions) -> None:
    if options.qrels and not options.run:
        raise ValueError("--qrels are the judgements of a --run")
    if bool(options.data) == bool(options.qrels):
        raise ValueError("the questions come from --data, or from --qrels with --run: one of them is needed")
    if options.qrels and options.agreement:
        raise ValueError("--agreement compares candidates with texts, which --qrels have not: give --data")
    if options.run and (options.schedule or options.backend.backend or options.backend.precision):
        raise ValueError("a run is scored already: it goes with no option of a checkpoint")


def opened(place: Path | None, options: EvaluateOptions) -> Checkpoint:
    """The checkpoint in `place`, or of the model there, which is imported once; None for the default checkpoint."""
    form = options.backend
    device = chosen_device(form.device)
    return read_checkpoint(located(place, device=device, backend=form.backend, precision=form.precision))


def _ranked(options: EvaluateOptions, questions: list[Question], data: str) -> Source:
    """The rankings of the questions, with costs and a note where they come from checkpoints."""
    # Rankings without costs: of a service, of scores or a run in a file, of a text ranker.
    if options.url:
        schedule = options.schedule[0] if options.schedule else None
        rankings = service_rankings(options.url, questions, schedule=schedule, windows=options.windows)
        return Source(questions=len(questions), rankings=rankings, data=data, windows=options.windows)
    if options.scores or options.run:
        return Source(questions=len(questions), rankings=_scored(options, questions), data=data)
    if options.text_ranker:
        if options.schedule or options.backend.backend or options.backend.precision:
            raise ValueError("a text ranker has one stage, and runs on torch in fp32")
        from cerberank_training.evaluation.sources.text_ranker import folder_rankings  # noqa: PLC0415 - needs torch

        rankings = folder_rankings(options.text_ranker, questions, device=chosen_device(options.backend.device))
        return Source(questions=len(questions), rankings=rankings, data=data)
    # Costs depend on the numbers of candidates of the questions in the table.
    sizes = [len(question.candidates) for question in subset(questions, options.subset)]
    if not sizes:
        raise ValueError(f"no question is in the subset {options.subset!r}")
    # Several checkpoints in sequence, or one with all its exits, heads and schedules.
    windowing = windowing_of(options.windows)
    if options.sequence:
        models = [opened(path, options) for path in options.sequence]
        policies: list[DropPolicy] = [replace(schedule, minimum=options.minimum) for schedule in options.schedule]
        form = asdict(options.backend.chosen())
        scorers = [Scorer.open(model, **form, windowing=windowing) for model in models]
        return Source(
            questions=len(questions),
            costs=sequence_costs(models, policies, sizes),
            rankings=sequence_rankings(scorers, questions, policies),
            data=data,
            windows=options.windows or " and ".join(dict.fromkeys(each.config.encoding.windows for each in models)),
        )
    checkpoint = opened(options.checkpoint, options)
    chosen, windows = options.backend.chosen(checkpoint), options.windows or checkpoint.config.encoding.windows
    dropping = schedules(options, checkpoint.config)
    ranker = Ranker.load(checkpoint.path, device=chosen.device, backend=chosen.kind, precision=chosen.precision)
    return Source(
        questions=len(questions),
        costs=variant_costs(checkpoint.config, dropping, sizes),
        rankings=ranker_rankings(ranker, questions, policies=dropping, windowing=windowing),
        data=data,
        notes=(default_note(checkpoint.config),),
        windows=windows,
        served=default_name(checkpoint.config),
        speed=partial(measure_speed, ranker, questions, options.windows),
    )


def schedules(options: EvaluateOptions, config: RankerConfig) -> list[Dropping]:
    """The schedules that are measured: a checkpoint's default if it drops anything, then those of --schedule."""
    policies: list[Dropping] = [replace(schedule, minimum=options.minimum) for schedule in options.schedule]
    default = default_dropping(config)
    return policies if default is None else [default, *(policy for policy in policies if policy != default)]


def default_note(config: RankerConfig) -> str:
    """Sentences that name the default schedules of a checkpoint; empty if it drops nothing."""
    default = default_dropping(config)
    if default is None:
        return ""
    note = f"`{policy_name(default)}` is the checkpoint's default schedule: the service answers with it."
    if isinstance(default, DefaultSchedules):
        ranges = [f"{config.drop_policy()} for few candidates"]
        ranges += [
            f"{config.drop_policy(candidates=each.candidates)} from {each.candidates:,} on"
            for each in config.longer_lists
        ]
        note += f" It is {'; '.join(ranges)}."
    return note


def _scored(options: EvaluateOptions, questions: list[Question]) -> Iterator[RankedQuestion]:
    """By scores that stand in a file."""
    if options.run:
        return run_rankings(options.run, questions)
    if options.scores is None or options.schedule:
        raise ValueError("--scores are of one stage: they do not go with --schedule")
    if options.scores.is_dir():
        return teacher_rankings(TeacherScoreCache.open(options.scores), questions)
    return file_rankings(options.scores, questions)
