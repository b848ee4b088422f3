"""Plots accuracy against cost as PNG, by matplotlib's object interface, which keeps no global state."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cerberank_training.evaluation.evaluate import Figures
from cerberank_training.evaluation.metrics import TITLES
from cerberank_training.evaluation.tune import Tuning


def evaluation_plot(figures: Mapping[str, Figures], costs: Mapping[str, float], *, title: str) -> bytes:
    """MAP by exit, head and drop schedule against cost, with the standard errors, as PNG."""
    figure, axes = _axes(title)
    for kind, label, marker in (
        ("final", "all layers", "*"),
        ("exit ", "exit alone", "s"),
        ("head ", "one head", "x"),
        ("drop ", "drop schedule", "o"),
    ):
        names = sorted((name for name in figures if name.startswith(kind)), key=lambda name: costs[name])
        if not names:
            continue
        axes.errorbar(
            [costs[name] for name in names],
            [figures[name].mean["map"] for name in names],
            yerr=[figures[name].error["map"] or 0.0 for name in names],
            marker=marker,
            linestyle="" if kind in {"final", "head "} else ":",
            capsize=2,
            label=label,
        )
        if kind != "head ":
            for name in names:
                axes.annotate(f" {name}", (costs[name], figures[name].mean["map"]), fontsize="x-small")
    return _png(figure, axes)


def tuning_plot(tuning: Tuning, *, title: str) -> bytes:
    """MAP against cost of every schedule that was tried, the best at each cost, and the chosen one, as PNG."""
    figure, axes = _axes(title)
    for points, style, colour, size, label in (
        (tuning.tried, ".", "0.7", 4, "tried"),
        (tuning.frontier, "o-", "C0", 5, "best at its cost"),
        ([tuning.default], "*", "C3", 14, "default"),
    ):
        costs, accuracies = [point.cost for point in points], [point.metrics["map"] for point in points]
        axes.plot(costs, accuracies, style, color=colour, markersize=size, label=label)
    return _png(figure, axes)


def depth_plot(figures: Mapping[int, Mapping[str, Figures]], *, title: str) -> bytes:
    """MAP and P@1 of each ranking against the number of candidates, with the standard errors, as PNG."""
    figure, axes = _axes(title, "candidates", "%")
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


def _axes(title: str, place: str = "cost, relative to dropping nothing", value: str = "MAP, %") -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=place, ylabel=value)
    axes.grid(alpha=0.3)
    return figure, axes


def _png(figure: Figure, axes: Axes) -> bytes:
    axes.legend()
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
