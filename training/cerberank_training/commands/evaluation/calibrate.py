"""`cerberank checkpoint calibrate`: a checkpoint whose scores are probabilities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from cerberank_models.calibration import FILE, SECTION, Calibration, Threshold, folded
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.model_card import with_section
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.options import OWN, BackendChoice, BackendOptions, Windows, check_device
from cerberank_models.commands.values import Count, DataSpec, Whole, data_help
from cerberank_models.output import say
from cerberank_models.progress import progress
from cerberank_models.windows import windowing_of
from cerberank_training.data import Question, read_questions, sampled, set_names
from cerberank_training.evaluation.calibration_fit import (
    Scored,
    check_curves,
    check_questions,
    cross_validated,
    first_result,
    fit,
)
from cerberank_training.evaluation.calibration_questions import as_asked
from cerberank_training.evaluation.first_results import FirstResultFigures, first_result_figures, sentence
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.variants import Scorer, score_questions
from cerberank_training.runs.summary import check_not_trained_on


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CalibrateOptions:
    """The options of `checkpoint calibrate`."""

    data: Annotated[
        tuple[DataSpec, ...],
        Parameter(
            help=data_help(
                "300 to 3,000 questions, at least 100, that the model was not trained on; of one or several sets"
            )
        ),
    ]
    out: Path
    """Checkpoint folder to make."""
    version: str | None = None
    """Version of the new folder (default: the old one's with -calibrated)."""
    sample: Count | None = None
    """Number of questions to draw of each set (default: all)."""
    unanswered_share: Annotated[float, Parameter(validator=Number(gt=0, lt=1))] = 0.5
    """Share of questions without an answer that your users ask. Answers are removed from random questions until so many
    have none."""
    seed: Whole = 0
    """Random seed."""
    windows: Windows = None
    backend: BackendOptions = OWN


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibrated:
    """A checkpoint whose scores are probabilities."""

    checkpoint: Path
    calibration: Calibration
    """The content of calibration.json, such as its thresholds."""
    before: FirstResultFigures
    after: FirstResultFigures
    """The figures by cross-validation."""


def calibrate(checkpoint: Path, /, *, options: CalibrateOptions) -> Calibrated:
    """Fit probabilities to a checkpoint's scores, and write them into a new checkpoint.

    The new folder has the same network. Its scores are P(the candidate answers), each question's answer says whether
    any candidate answers it, and a request may ask for a precision. Half of the questions are used without their
    answers, and half with a short list of candidates, as assistants ask them. The figures are those of fivefold
    cross-validation.

    Args:
        checkpoint: Checkpoint folder.
        options: Options.
    """
    if options.out.exists():
        raise FileExistsError(f"{options.out} exists; a checkpoint is never overwritten")
    # Every question is scored once, by the form that the command names.
    source = read_checkpoint(checkpoint)
    form = options.backend.chosen(source)
    check_device(form.device, form.kind)
    asked = as_asked(_chosen(checkpoint, options), unanswered=options.unanswered_share, seed=options.seed)
    check_questions(asked.questions)
    questions = _scored(source, form, options, asked.questions)
    # The calibration is fitted on all questions; its figures come from folds that it was not fitted on.
    names = set_names(options.data)
    calibration = fit(questions, sets=names, precision=form.precision, removed=asked.removed)
    check_curves(calibration)
    before = first_result_figures([first_result(None, each) for each in questions])
    after = cross_validated(questions)
    # The same lines are shown and stand in the card of the new folder.
    lines = (
        sentence(before, "First scores before calibration"),
        sentence(after, "Afterwards, by fivefold cross-validation"),
        thresholds(calibration),
        _fitted_on(calibration, options.windows or source.config.encoding.windows),
    )
    for line in lines:
        say(line)
    revise_checkpoint(
        source,
        options.out,
        version=options.version or f"{source.manifest.version}-calibrated",
        card=with_section((source.path / "README.md").read_text(encoding="utf-8"), SECTION, "\n\n".join(lines)),
        files={FILE: calibration.model_dump_json(indent=1).encode() + b"\n"},
    )
    share = f"{100 * calibration.unanswered:.0f} % of them without an answer"
    say(f"{options.out}: calibrated on {len(questions)} questions, {share}; calibration error {after.ece:.3f}")
    return Calibrated(checkpoint=options.out, calibration=calibration, before=before, after=after)


def thresholds(calibration: Calibration) -> str:
    """Markdown tables of the thresholds."""

    def rows(reached: tuple[Threshold, ...]) -> list[list[str]]:
        return [[f"{value:.2f}" for value in row.model_dump().values()] for row in reached]

    columns = ["score of the first result", "precision there", "answered and right there", "guaranteed"]
    columns += ["precision if all questions have an answer", "guaranteed then"]
    return "\n\n".join(
        table([f"wanted {name}", *columns], rows(reached))
        for name, reached in (("precision", calibration.precision), ("recall", calibration.recall))
        if reached
    )


def _fitted_on(calibration: Calibration, windows: str) -> str:
    data = calibration.data
    return (
        f"Fitted on {data.questions} questions with {data.candidates} candidates of {', '.join(data.sets)} "
        f"({data.precision}, windows: {windows}). {data.unanswered} of them had no answer; the answers of "
        f"{data.removed} had been removed. A quarter had one candidate, and a quarter two to five. A guaranteed "
        f"precision holds with probability {calibration.confidence:g} for questions like these."
    )


def _chosen(checkpoint: Path, options: CalibrateOptions) -> list[Question]:
    """The questions in a random order, because the folds of the cross-validation are taken in turns.

    A question that comes again, in a set or in another one, is left out: bounds count independent questions. Raises
    DataError for data that the checkpoint was trained on, because bounds on them do not hold for other questions.
    """
    chosen: dict[str, Question] = {}
    for data in options.data:
        every = list(read_questions(data))
        check_not_trained_on(checkpoint, data, every, option="--data")
        others = {folded(each.text): each for each in reversed(every)}
        new = [each for text, each in reversed(others.items()) if text not in chosen]
        drawn = sampled(new, size=options.sample, seed=options.seed, name="raw")
        chosen |= {folded(each.text): each for each in drawn}
    questions = list(chosen.values())
    random.Random(options.seed).shuffle(questions)
    return questions


def _scored(
    source: Checkpoint, form: BackendChoice, options: CalibrateOptions, questions: Sequence[Question]
) -> list[Scored]:
    scorer = Scorer.open(source, **asdict(form), windowing=windowing_of(options.windows))
    scored = score_questions(scorer, questions)
    return [Scored.of(*each) for each in progress(scored, total=len(questions), unit="question", desc="score")]
