"""`cerberank data sample`: the groups of a training run, written beforehand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from cerberank_models.commands.values import Count, DataSpec, Whole, data_help
from cerberank_models.output import UsageError, note
from cerberank_models.progress import progress
from cerberank_training.commands.presets import student_settings
from cerberank_training.data import open_questions
from cerberank_training.data.generic import writing_lines
from cerberank_training.data.mixture import Additions, Mixture
from cerberank_training.data.question_table import QuestionTable
from cerberank_training.data.sampling import Group, PairSampler, Sampler, sampler_for
from cerberank_training.runs.settings import RECIPE_HELP

NO_ADDITIONS = Additions()


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """A file of groups."""

    path: Path
    groups: int
    pairs: int
    positives: int


def sample(
    *,
    recipe: Annotated[str, Parameter(help=RECIPE_HELP)],
    train: Annotated[tuple[DataSpec, ...], Parameter(help=data_help("Questions, of one set or of several"))],
    questions: Count,
    out: Path,
    additions: Additions = NO_ADDITIONS,
    seed: Whole = 1,
) -> Sampled:
    """Write the groups that a recipe would train on, so that teachers can score them beforehand.

    Several data sets are mixed. The groups depend only on data, recipe and options. The file is generic JSONL (gzip
    if its name ends in .gz): one line a question, its candidates in the order of the step.

    Args:
        recipe: Recipe.
        train: Data.
        questions: Number of groups to write; the questions are repeated in further epochs if needed.
        out: File to write, .jsonl or .jsonl.gz.
        additions: Changes of the groups.
        seed: Random seed.
    """
    sampling = student_settings(recipe).examples
    if len(set(train)) < len(train):
        raise UsageError("--train names a data set twice.")
    # A sampler for each set, and their mixture.
    tables: dict[str, QuestionTable] = {name: open_questions(name, training=True) for name in train}
    samplers: dict[str, Sampler | PairSampler] = {
        name: sampler_for(name, table, sampling, seed=seed, unanswered=additions.without_positive > 0)
        for name, table in tables.items()
    }
    groups = Mixture(samplers, tables, additions, seed=seed).groups(questions)
    drawn, pairs, positives = Counter[str](), 0, 0
    with writing_lines(out) as write:
        for name, group in progress(groups, total=questions, unit="question"):
            write(_line(group))
            drawn[name] += 1
            pairs += len(group.labels)
            positives += sum(label > 0 for label in group.labels)
    if len(train) > 1:
        for name, count in drawn.most_common():
            _say(f"{count} groups of {name}, {count / len(samplers[name]):.2f} epochs")
    sizes = f"{questions} groups and {pairs} pairs, {positives} positive"
    _say(f"{out} holds {sizes}; next: cerberank data score CACHE --teacher TEACHER --data jsonl:{out}")
    return Sampled(path=out, groups=questions, pairs=pairs, positives=positives)


def _say(line: str) -> None:
    note(f"cerberank data sample: {line}")


def _line(group: Group) -> dict[str, Any]:
    candidates = [
        {"text": candidate.text, "label": int(label), "previous": candidate.previous, "next": candidate.next}
        for candidate, label in zip(group.candidates, group.labels, strict=True)
    ]
    return {"question": group.question, "candidates": candidates}
