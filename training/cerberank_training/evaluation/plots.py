"""Plots of accuracy against cost as PNG, by matplotlib's object interface, which has no global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cerberank_training.evaluation.figures import Figures
from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.schedule_search import Tuning, frontier

FIGURE_2 = ("map", "ndcg@10", "p@1", "mrr")
"""The metrics of the Cascade Transformer's figure 2, each in its own panel."""

MARKS = (
    ("exit ", "exit alone", "s", 6),
    ("drop ", "drop schedule", "o", 6),
    ("head ", "one head", "x", 8),
    ("final", "all layers", "*", 14),
)
"""The beginning of the rankings' names, their label, mark and its size, in the order in which they are drawn."""
NEAR = 0.08
"""The difference of two costs below which labels of the same height would overlap."""


def evaluation_plot(figures: Mapping[str, Figures], costs: Mapping[str, float], *, title: str) -> bytes:
    """MAP, nDCG@10, P@1 and MRR by exit, head and schedule against cost, with the standard errors, as PNG."""
    figure, panels = _panels(f"{title} (bars: one standard error to either side)", FIGURE_2)
    for metric, axes in panels.items():
        axes.margins(x=0.15, y=0.15)  # room for the labels
        labelled: list[float] = []
        for order, (kind, label, marker, size) in enumerate(MARKS, start=2):
            names = sorted((name for name in figures if name.startswith(kind)), key=lambda name: costs[name])
            if not names:
                continue
            axes.errorbar(
                [costs[name] for name in names],
                [figures[name].mean[metric] for name in names],
                yerr=[figures[name].error[metric] or 0.0 for name in names],
                marker=marker,
                markersize=size,
                markerfacecolor="none",  # marks at one place stay visible
                linestyle="" if kind in {"final", "head "} else ":",
                capsize=2,
                label=label,
                zorder=order,
            )
            if kind == "head ":
                continue
            for name in names:
                # Labels of nearly equal costs stand above each other.
                rows = sum(abs(costs[name] - other) < NEAR for other in labelled)
                labelled.append(costs[name])
                axes.annotate(
                    name.removeprefix("drop ").partition(" (")[0],
                    (costs[name], figures[name].mean[metric]),
                    xytext=(6, 6 + 9 * rows),
                    textcoords="offset points",
                    fontsize="x-small",
                    horizontalalignment="left",
                )
    return _png(figure, panels["map"])


def tuning_plot(tunings: Mapping[int | None, Tuning], *, title: str) -> bytes:
    """A PNG of each metric against cost, with the best schedule at each cost and the chosen one, by depth."""
    metrics = next(iter(tunings.values())).default.metrics
    figure, panels = _panels(title, [metric for metric in FIGURE_2 if metric in metrics])
    for metric, axes in panels.items():
        for number, (depth, tuning) in enumerate(tunings.items()):
            label = "best at its cost" if depth is None else f"{depth:,} candidates"
            for points, style, size, name in (
                (tuning.tried, ".", 3, None),
                (frontier(tuning.tried, metric), "o-", 5, label),
                ([tuning.default], "*", 14, f"default, {label}" if depth else "default"),
            ):
                costs, values = [point.cost for point in points], [point.metrics[metric] for point in points]
                axes.plot(costs, values, style, color=f"C{number}", markersize=size, label=name)
    return _png(figure, panels["map"])


def depth_plot(figures: Mapping[int, Mapping[str, Figures]], *, title: str) -> bytes:
    """MAP and P@1 of each ranking against the number of candidates, with the standard errors, as PNG."""
    figure, axes = _axes(f"{title} (bars: one standard error to either side)", "candidates", "%")
    axes.set_xscale("log")
    for index, name in enumerate(next(iter(figures.values()))):
        for metric, style in (("map", "o-"), ("p@1", "s:")):
            axes.errorbar(
                list(figures),
                [rows[name].mean[metric] for rows in figures.values()],
                yerr=[rows[name].error[metric] or 0.0 for rows in figures.values()],
                fmt=style,
                color=f"C{index}",
                capsize=2,
                label=f"{name}, {TITLES[metric]}",
            )
    return _png(figure, axes)


def _panels(title: str, metrics: Sequence[str]) -> tuple[Figure, dict[str, Axes]]:
    """A panel for each metric, two in a row."""
    rows = -(-len(metrics) // 2)
    figure = Figure(figsize=(11.0, 4.2 * rows), layout="constrained")
    figure.suptitle(title, wrap=True)
    panels = {}
    for place, metric in enumerate(metrics):
        axes = figure.add_subplot(rows, 2, place + 1, ylabel=f"{TITLES[metric]}, %")
        axes.set_xlabel("cost, relative to dropping nothing")
        axes.grid(alpha=0.3)
        panels[metric] = axes
    return figure, panels


def _axes(title: str, place: str, value: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel=place, ylabel=value)
    axes.set_title(title, wrap=True)
    axes.grid(alpha=0.3)
    return figure, axes


def _png(figure: Figure, axes: Axes) -> bytes:
    axes.legend()
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
