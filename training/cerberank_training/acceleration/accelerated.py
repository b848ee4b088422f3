"""Writes the checkpoint of `train accelerate`: exits that are trained, and a schedule that is chosen and checked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from safetensors.torch import load_file
from tokenizers import Tokenizer

from cerberank_models.backends.stage_contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.checkpoint.model_card import RUN, with_section
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.commands.options import BackendOptions
from cerberank_models.config import RankerConfig
from cerberank_models.convert.checkpoint import Forms, export_checkpoint
from cerberank_models.output import say
from cerberank_models.progress import progress
from cerberank_models.transformer import OpaqueTransformer
from cerberank_training.acceleration.exits_job import LEAST, ExitsJob
from cerberank_training.acceleration.schedule import (
    TITLES,
    AgainstOwnRanking,
    FormAgreement,
    check_drops,
    held_out_scores,
    measure_form,
    same_first_share,
    within_gate,
)
from cerberank_training.acceleration.settings import Accelerated, AccelerateOptions
from cerberank_training.data import Question
from cerberank_training.data.sampling import calibration_texts
from cerberank_training.evaluation.dev_sets import DevSets
from cerberank_training.evaluation.gate import GateError
from cerberank_training.evaluation.schedule_search import SECTION, Tuning, TuningBounds, tune
from cerberank_training.evaluation.variants import AllScores, Scorer, score_questions
from cerberank_training.runs.job import run_job
from cerberank_training.runs.unlabelled import unlabelled


def accelerated(checkpoint: Checkpoint, options: AccelerateOptions) -> Accelerated:
    """Write a checkpoint with exits and a drop schedule, or with a share of the lexical layer for an opaque graph."""
    if isinstance(checkpoint.config.transformer, OpaqueTransformer):
        return _opaque(checkpoint, options)
    # 1. Exits learn the model's own scores, in OUT.work.
    job = ExitsJob(options, checkpoint)
    run_job(job)
    source, ranker, questions, start = job.checkpoint, job.ranker, job.questions, job.start
    exits = job.exits
    exits.load_state_dict(load_file(job.result))
    held_out = list(held_out_scores(exits.eval(), job.states, questions, source.encoder(), start=start))
    # 2. The schedule is chosen by the model's own ranking, among those that the gate of the forms accepts.
    tuning, checked = _tuned(ranker.config, held_out, options)
    policy = tuning.default.policy
    # 3. The checkpoint; each of its forms is measured with the schedule.
    ranker.config = _with_schedule(ranker.config, tuning)
    learnt = f"Exits by `train accelerate`: they learned this model's own scores on {start} questions without labels. "
    text = _report(tuning, held_out, learnt)
    say(text)

    forms: dict[str, FormAgreement] = {}

    def accept(precision: str, form: Backend[Any]) -> None:
        figures = measure_form(form, source.encoder(), checked, policy)
        say(f"{precision}: {figures}")
        forms[precision] = figures
        try:
            figures.check(precision, options.min_agreement)
        except GateError as error:
            again = "a smaller --max-loss or a larger --max-cost"
            raise GateError(f"{error}; repeat with {again}, which takes little time while {job.out} is kept") from error

    accept("weights", TorchBackend(ranker))
    export_checkpoint(
        ranker,
        Tokenizer.from_file(str(source.path / "tokenizer.json")),
        options.out,
        card=with_section((source.path / "README.md").read_text(encoding="utf-8"), SECTION, text),
        version=options.version or f"{source.manifest.version}-accelerated",
        source=source.manifest.source,
        metrics=source.manifest.metrics,
        forms=Forms(
            precisions=options.forms,
            calibration=calibration_texts(questions[:start], seed=options.seed),
            accept=accept,
        ),
        files={RUN: source.path / RUN} if RUN in source.manifest.files else {},
    )
    say(f"{options.out} is written; {job.out} may be removed")
    return Accelerated(checkpoint=options.out, tuning=tuning, forms=forms)


def _opaque(checkpoint: Checkpoint, options: AccelerateOptions) -> Accelerated:
    """The share of the lexical layer alone, for a graph that cannot get exits."""
    questions = unlabelled(options.data)[-options.held_out :]
    if len(questions) < LEAST:
        raise ValueError(f"--data has {len(questions)} questions: there must be at least {LEAST}")
    form = BackendOptions(device=options.run.place).chosen(checkpoint)
    scored = score_questions(Scorer.open(checkpoint, **asdict(form), windowing=None), questions)
    held_out = list(progress(scored, total=len(questions), unit="question", desc="score"))
    tuning, checked = _tuned(checkpoint.config, held_out, options)
    text = _report(tuning, held_out, "The lexical layer's share by `train accelerate`. ")
    say(text)
    revise_checkpoint(
        checkpoint,
        options.out,
        version=options.version or f"{checkpoint.manifest.version}-accelerated",
        config=_with_schedule(checkpoint.config, tuning),
        card=with_section((checkpoint.path / "README.md").read_text(encoding="utf-8"), SECTION, text),
    )
    top1 = same_first_share(checked, tuning.default.policy)
    say(f"{options.out} is written; it keeps the first candidate of {top1:.1f} % of {len(checked)} questions")
    return Accelerated(checkpoint=options.out, tuning=tuning, forms={})


def _tuned(
    config: RankerConfig, held_out: list[tuple[Question, AllScores]], options: AccelerateOptions
) -> tuple[Tuning, list[tuple[Question, AllScores]]]:
    """The schedule by the model's own ranking, and the questions that check it."""
    dev = DevSets(config.stage_layers, {"held out": held_out}, minimum=options.minimum, reference=AgainstOwnRanking())
    max_loss = 3.0 if options.max_loss is None and options.max_cost is None else options.max_loss
    bounds = TuningBounds(max_loss=max_loss, max_cost=options.max_cost, least={"top1_agreement": options.min_agreement})
    tuning = tune(dev, bounds)
    check_drops(tuning)
    checked = random.Random(0).sample(held_out, min(options.gate_questions, len(held_out)))
    return within_gate(tuning, bounds, checked, least=options.min_agreement), checked


def _with_schedule(config: RankerConfig, tuning: Tuning) -> RankerConfig:
    policy = tuning.default.policy
    return config.model_copy(
        update={
            "drop_schedule": policy.ratios,
            "lexical_ratio": policy.lexical,
            "drop_minimum": policy.minimum,
            "longer_lists": (),
            "tuned_schedules": tuning.menu,
        }
    )


def _report(tuning: Tuning, held_out: Sequence[tuple[Question, AllScores]], origin: str) -> str:
    candidates = fmean(len(question.candidates) for question, _ in held_out)
    return (
        f"{tuning.table(TITLES)}\n\n{origin}The schedules were chosen on {len(held_out)} others, "
        f"{candidates:.1f} candidates each, against the model's own ranking of all candidates: whether its first is "
        "still first, and how many of its first five are still among the first five; agreement is the mean of both. "
        "Expect a little less on other questions."
    )
