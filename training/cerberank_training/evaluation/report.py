"""Renders evaluations as Markdown tables for people; programs read the same figures from JSON."""

from __future__ import annotations

from collections.abc import Mapping

from cerberank_training.evaluation.agreement import GROUPS, Agreement, Majority
from cerberank_training.evaluation.figures import Figures
from cerberank_training.evaluation.question_metrics import TITLES


def markdown(
    figures: Mapping[str, Figures], costs: Mapping[str, float] | None = None, columns: Mapping[str, str] = TITLES
) -> str:
    """A table with a row for each variant. `costs` are relative to all layers on all candidates.

    `columns` has the titles of the shown metrics. Bounds and the standard error are those of the first metric.
    """
    first = next(iter(columns))
    header = ["ranking", *columns.values(), f"{columns[first]} bounds (ties)", "cost", "questions / pairs"]
    rows = []
    for name, row in figures.items():
        cost = (costs or {}).get(name)
        rows.append(
            [
                name,
                *(f"{row.mean[metric]:.1f}" for metric in columns),
                f"{row.pessimistic[first]:.1f}-{row.optimistic[first]:.1f} ({row.tied})",
                "" if cost is None else f"{cost:.2f}",
                f"{row.questions} / {row.pairs}",
            ]
        )
    text = table(header, rows)
    error = next(iter(figures.values())).error[first]
    return text if error is None else f"{text}\n\nStandard error of the first row's {columns[first]}: {error:.1f}."


def agreement_markdown(agreements: Mapping[tuple[str, str], Agreement]) -> str:
    """A table with a row for each pair of head and teacher."""
    header = ["head", "teacher", "agreement", "shared / correct"]
    rows = [
        [
            head,
            teacher,
            "" if value.share is None else f"{value.share:.3f}",
            f"{value.shared:.1f} / {value.correct:.1f}",
        ]
        for (head, teacher), value in agreements.items()
    ]
    return table(header, rows)


def majority_markdown(majorities: Mapping[str, Majority]) -> str:
    """A table with a row for each head: its right questions, by the share of right teachers (CERBERUS section 5.3)."""
    header = ["right / questions where", *(f"{name} of the teachers" for name in GROUPS[:-1]), "no teacher is right"]
    rows = []
    for head, value in majorities.items():
        cells = [(right, questions) for questions, right in map(value.where, GROUPS)]
        rows.append([head, *(f"{right:.1f} / {questions:.1f}" for right, questions in cells)])
    return table(header, rows)


def depth_markdown(figures: Mapping[int, Mapping[str, Figures]], costs: Mapping[int, Mapping[str, float]]) -> str:
    """A table with a row for each depth and ranking: the means of MAP and P@1 with standard errors."""
    header = ["candidates", "ranking", "MAP ± error", "P@1 ± error", "cost", "questions"]
    rows = [
        [
            f"{depth:,}",
            name,
            *(f"{row.mean[metric]:.1f} ± {row.error[metric] or 0.0:.1f}" for metric in ("map", "p@1")),
            f"{costs[depth][name]:.2f}",
            str(row.questions),
        ]
        for depth, variants in figures.items()
        for name, row in variants.items()
    ]
    return table(header, rows)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
