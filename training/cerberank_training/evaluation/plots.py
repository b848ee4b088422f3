"""The plot of drop schedules as PNG, by matplotlib's object interface, which has no global state."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

from matplotlib.figure import Figure

from cerberank_training.evaluation.question_metrics import TITLES
from cerberank_training.evaluation.schedule_search import Tuning, frontier

FIGURE_2 = ("map", "ndcg@10", "p@1", "mrr")
"""The metrics of the Cascade Transformer's figure 2, each in its own panel."""


def tuning_plot(tunings: Mapping[int | None, Tuning], *, title: str) -> bytes:
    """A PNG of each metric against cost, with the best schedule at each cost and the chosen one, by depth."""
    measured = next(iter(tunings.values())).default.metrics
    metrics = [metric for metric in FIGURE_2 if metric in measured]
    rows = -(-len(metrics) // 2)
    figure = Figure(figsize=(11.0, 4.2 * rows), layout="constrained")
    figure.suptitle(title, wrap=True)
    for place, metric in enumerate(metrics, start=1):
        axes = figure.add_subplot(rows, 2, place, ylabel=f"{TITLES[metric]}, %")
        axes.set_xlabel("cost, relative to dropping nothing")
        axes.grid(alpha=0.3)
        for number, (depth, tuning) in enumerate(tunings.items()):
            label = "best at its cost" if depth is None else f"{depth:,} candidates"
            for points, style, size, name in (
                (tuning.tried, ".", 3, None),
                (frontier(tuning.tried, metric), "o-", 5, label),
                ([tuning.default], "*", 14, f"default, {label}" if depth else "default"),
            ):
                costs, values = [point.cost for point in points], [point.metrics[metric] for point in points]
                axes.plot(costs, values, style, color=f"C{number}", markersize=size, label=name)
        if metric == metrics[0]:
            axes.legend()
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()
