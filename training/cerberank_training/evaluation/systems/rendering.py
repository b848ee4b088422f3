"""Tables of systems in Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Mapping

from cerberank_training.evaluation.paired_tests import SIGNIFICANCE
from cerberank_training.evaluation.report import table
from cerberank_training.evaluation.systems.comparison import Cell, SystemTable

STUDENT, WILCOXON, SPREAD = "†", "‡", "±"
LATEX = str.maketrans({character: f"\\{character}" for character in "_&%#$"})


def markdown_table(result: SystemTable) -> str:
    """A table with a row for each system and a column for each set, the mean over sets, and the legend."""
    text = table(_header(result), _rows(result))
    return f"{text}\n\n{note}" if (note := legend(result)) else text


def latex_table(result: SystemTable) -> str:
    """A `tabular` with the legend in a comment above it."""
    marks = {STUDENT: "$^{\\dagger}$", WILCOXON: "$^{\\ddagger}$", SPREAD: "$\\pm$"}
    rows = []
    for cells in (_header(result), *_rows(result)):
        line = " & ".join(cell.translate(LATEX) for cell in cells)
        for mark, command in marks.items():
            line = line.replace(mark, command)
        rows.append(f"{line} \\\\")
    comment = [f"% {note}"] if (note := legend(result)) else []
    columns = "l" + "r" * (len(_header(result)) - 1)
    lines = [*comment, f"\\begin{{tabular}}{{{columns}}}", "\\hline", rows[0], "\\hline", *rows[1:], "\\hline"]
    return "\n".join([*lines, "\\end{tabular}"])


def legend(result: SystemTable) -> str:
    """The meaning of the marks; empty without a baseline."""
    if result.baseline is None:
        return ""
    return (
        f"{STUDENT} / {WILCOXON}: differs from {result.baseline} with p < {SIGNIFICANCE} by Student's / Wilcoxon's "
        f"paired test over questions, after Holm's correction over all of the table ({result.tests} tests). "
        "The mean over sets is not tested."
    )


def _header(result: SystemTable) -> list[str]:
    sets = next(iter(result.cells.values()))
    return [result.measure, *(f"{name} ({cell.questions})" for name, cell in sets.items()), "mean"]


def _rows(result: SystemTable) -> list[list[str]]:
    return [
        [_named(system, row), *(_figure(cell) for cell in row.values()), f"{result.means[system]:.1f}"]
        for system, row in result.cells.items()
    ]


def _named(system: str, row: Mapping[str, Cell]) -> str:
    """The name of the system, with the number of runs if there are several."""
    runs = next(iter(row.values())).runs
    return f"{system} ({runs} runs)" if runs > 1 else system


def _figure(cell: Cell) -> str:
    spread = f" {SPREAD} {cell.spread:.1f}" if cell.spread is not None else ""
    return f"{cell.mean:.1f}{spread}{_marks(cell)}"


def _marks(cell: Cell) -> str:
    if cell.against is None:
        return ""
    marks = ((STUDENT, cell.against.student_holm), (WILCOXON, cell.against.wilcoxon_holm))
    return "".join(mark for mark, p_value in marks if p_value < SIGNIFICANCE)
