"""A benchmark's result, as JSON for programs, and as a Markdown table and charts (PNG) for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from cerberank_models.checkpoint.atomic import write_bytes
from cerberank_training.evaluation.report import table

Value = float | int | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """Bars of several series, grouped by their places on the x axis."""

    places: Sequence[float | int | str]
    series: Mapping[str, Sequence[float]]
    place_label: str
    value_label: str


@dataclass(frozen=True, slots=True)
class Point:
    """A point of `Panels` with the standard error of `y`. `label` is written beside it."""

    x: float
    y: float
    error: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Panels:
    """Charts side by side, whose series are points, connected by a line. The x axis is logarithmic."""

    panels: Mapping[str, Mapping[str, Sequence[Point]]]
    """The series of each chart, by its title."""
    place_label: str
    value_label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The figures of one benchmark."""

    name: str
    text: str
    """The description of the measurement and its method, in a sentence or two."""
    rows: Sequence[Mapping[str, Value]]
    """The rows of the table, all with the same columns."""
    chart: Chart | Panels
    problems: Sequence[str] = ()
    """Problems of the measurement, such as results that must be equal but differ."""


def write_report(report: Report, folder: Path, context: Mapping[str, Any]) -> None:
    """Write `<name>.png`, `<name>.md` and, last, `<name>.json`; the last two have the `context`: settings, machine."""
    folder.mkdir(parents=True, exist_ok=True)
    chart = report.chart
    png = _chart(report.name, chart) if isinstance(chart, Chart) else _panels(chart)
    write_bytes(folder / f"{report.name}.png", png)
    write_bytes(folder / f"{report.name}.md", markdown(report, context).encode())
    content = json.dumps(asdict(report) | {"context": dict(context)}, indent=1, allow_nan=False)
    write_bytes(folder / f"{report.name}.json", content.encode() + b"\n")


def markdown(report: Report, context: Mapping[str, Any]) -> str:
    """The text, the table, the `context` of the measurement, and the problems."""
    columns = list(report.rows[0])
    body = table(columns, [[_cell(row[column]) for column in columns] for row in report.rows])
    where = ", ".join(f"{name} {value}" for name, value in context.get("machine", {}).items())
    lines = [f"## {report.name}", "", report.text, "", body, "", where]
    lines += [f"\nProblem: {problem}" for problem in report.problems]
    return "\n".join(lines) + "\n"


def _chart(title: str, chart: Chart) -> bytes:
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=chart.place_label, ylabel=chart.value_label)
    axes.grid(alpha=0.3)
    places = range(len(chart.places))
    width = 0.8 / len(chart.series)
    for index, (name, values) in enumerate(chart.series.items()):
        axes.bar([place + index * width - 0.4 + width / 2 for place in places], values, width, label=name)
    axes.set_xticks(list(places), [str(place) for place in chart.places])
    axes.legend()
    return _png(figure)


def _panels(chart: Panels) -> bytes:
    figure = Figure(figsize=(5.0 * len(chart.panels), 4.6), layout="constrained")
    grid = figure.subplots(1, len(chart.panels), squeeze=False)
    names = list(dict.fromkeys(name for series in chart.panels.values() for name in series))
    for axes, (title, series) in zip(grid.flat, chart.panels.items(), strict=True):
        axes.set(title=title, xscale="log", xlabel=chart.place_label, ylabel=chart.value_label)
        axes.grid(alpha=0.3)
        for place, name in enumerate(names):
            points = sorted(series.get(name, ()), key=lambda point: point.x)
            x, y, errors = ([getattr(point, field) for point in points] for field in ("x", "y", "error"))
            axes.errorbar(x, y, errors, marker="o^sDvPX*<>"[place % 10], capsize=3, label=name)
            for point in points:
                axes.annotate(point.label, (point.x, point.y), xytext=(5, -11), textcoords="offset points", fontsize=8)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return _png(figure)


def _png(figure: Figure) -> bytes:
    content = BytesIO()
    figure.savefig(content, format="png", dpi=120)
    return content.getvalue()


def _cell(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else str(value)
