"""`cerberank evaluate --depths`: accuracy against the number of candidates."""

from __future__ import annotations

from dataclasses import asdict

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.commands.options import check_device
from cerberank_models.output import UsageError, say, say_written
from cerberank_models.progress import progress
from cerberank_models.windows import windowing_of
from cerberank_training.commands.evaluation.evaluate_options import EvaluateOptions
from cerberank_training.commands.evaluation.sources import default_note, opened, schedules
from cerberank_training.data import read_questions
from cerberank_training.data.deep_questions import deep_questions
from cerberank_training.evaluation.evaluate_ranker import Report
from cerberank_training.evaluation.figures import Evaluation
from cerberank_training.evaluation.report import depth_markdown
from cerberank_training.evaluation.variants import (
    Scorer,
    default_name,
    dropping_ranks,
    flat_ranks,
    score_depths,
    variant_costs,
)
from cerberank_training.runs.summary import trained_on

OTHER_TABLES = (
    *("sequence", "text_ranker", "url", "scores", "run", "qrels"),
    *("agreement", "measures", "trec_run", "trec_qrels", "per_question"),
)
"""Options that belong to evaluations of the data as they are."""


def evaluate_depths(options: EvaluateOptions) -> Report:
    """Print MAP and P@1 at each depth, of the final scores, the default schedule and those of --schedule.

    Raises UsageError for options of other evaluations, DataError where no question has the candidates.
    """
    if named := [f"--{name.replace('_', '-')}" for name in OTHER_TABLES if getattr(options, name)]:
        raise UsageError(f"--depths and {' and '.join(named)} do not go together")
    if not options.data:
        raise UsageError("--depths takes the questions of --data")
    # The checkpoint and its schedules.
    checkpoint = opened(options.checkpoint, options)
    form = options.backend.chosen(checkpoint)
    check_device(form.device, form.kind)
    policies = schedules(options, checkpoint.config)
    # Each question is scored once, with the candidates of its greatest depth.
    every = list(read_questions(options.data))
    warning = trained_on(checkpoint.path, options.data, every)
    questions = deep_questions(every, options.depths, size=options.sample, pairs=options.depth_pairs, seed=options.seed)
    scorer = Scorer.open(checkpoint, **asdict(form), windowing=windowing_of(options.windows))
    scored = score_depths(scorer, questions)
    evaluations = {depth: Evaluation() for depth in sorted(set(options.depths))}
    for at_depths in progress(scored, total=len(questions), unit="question"):
        for depth, question, scores in at_depths:
            ranks = flat_ranks({"final": scores.stages[-1]}) | dropping_ranks(scores, policies)
            evaluations[depth].add(question, ranks)
    # Figures and costs of the depths that some question reaches.
    reached = [depth for depth in evaluations if any(depth in deep.depths for deep in questions)]
    figures = {depth: evaluations[depth].figures() for depth in reached}
    costs = {
        depth: {
            name: cost
            for name, cost in variant_costs(checkpoint.config, policies, [depth]).items()
            if name in figures[depth]
        }
        for depth in reached
    }
    # What is shown, and what is written.
    say(depth_markdown(figures, costs))
    for line in (default_note(checkpoint.config), f"{warning}." if warning else ""):
        if line:
            say(line)
    for depth in evaluations.keys() - set(reached):
        say(f"No question has {depth:,} candidates, with those of other documents.")
    if options.json:
        content = {
            "data": options.data,
            "sample": options.sample,
            "depth_pairs": options.depth_pairs,
            "seed": options.seed,
            "windows": options.windows or checkpoint.config.encoding.windows,
            "depths": [
                {
                    "candidates": depth,
                    "costs": costs[depth],
                    "figures": {name: asdict(row) for name, row in figures[depth].items()},
                }
                for depth in reached
            ],
        }
        write_json(options.json, content)
    say_written((options.json, "figures and costs at each number of candidates"))
    return Report(figures=figures[reached[-1]], served=default_name(checkpoint.config), depths=figures)
