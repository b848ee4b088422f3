"""The result of the GPU benchmarks: `gpu.json` for programs and `gpu.md` for people, rewritten after every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from cerberank_benchmarks.gpu.lab import Finding, Problem, Row, Value
from cerberank_models.checkpoint.atomic import write_bytes, write_json
from cerberank_training.evaluation.report import table

FORMAT = 1
Status = Literal["not run", "running", "ran", "cut", "failed"]


@dataclass(kw_only=True, slots=True)
class PieceRecord:
    """The results of one piece."""

    name: str
    text: str
    """The description of the measurement, in a sentence or two."""
    status: Status = "not run"
    """`cut` has only the rows until the deadline; `not run` was not requested, or no time was left."""
    reason: str = ""
    """The reason that the piece did not run, was cut or failed, such as the type and message of an error."""
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Append a row or a problem."""
        if isinstance(finding, Problem):
            self.problems.append(finding.text)
        else:
            self.rows.append(dict(finding))


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The results of a run, in its folder."""

    folder: Path
    machine: Mapping[str, str]
    settings: Mapping[str, Value]
    pieces: Sequence[PieceRecord]

    @property
    def failed(self) -> bool:
        """True if a piece raised or found a problem."""
        return any(piece.status == "failed" or piece.problems for piece in self.pieces)

    def write(self) -> None:
        """Write both files, replacing older ones."""
        content = {
            "format": FORMAT,
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "pieces": [asdict(piece) for piece in self.pieces],
        }
        write_json(self.folder / "gpu.json", content)
        write_bytes(self.folder / "gpu.md", self.markdown().encode())

    def markdown(self) -> str:
        """The record as Markdown, with a section for every piece; a new table begins when its columns change."""
        facts = "\n".join(f"- {name}: {value}" for name, value in {**self.machine, **self.settings}.items())
        return "\n".join(["# python -m cerberank_benchmarks gpu", "", facts, "", *map(_section, self.pieces)])


def _section(piece: PieceRecord) -> str:
    state = f"{piece.status}: {piece.reason}" if piece.reason else piece.status
    lines = [f"## {piece.name}", "", piece.text, "", f"{state}, {piece.seconds:.1f} s", ""]
    rows = piece.rows
    while rows:
        columns = list(rows[0])
        count = next((place for place, row in enumerate(rows) if list(row) != columns), len(rows))
        lines += [table(columns, [[_cell(row[column]) for column in columns] for row in rows[:count]]), ""]
        rows = rows[count:]
    lines += [f"Problem: {problem}\n" for problem in piece.problems]
    return "\n".join(lines)


def _cell(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
