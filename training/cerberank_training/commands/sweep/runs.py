"""The runs of a sweep: commands in processes and folders of their own, and what identifies their settings.

Every run of a table has the folder OUT/<name>-<seed>, where its evaluations lie as well. What is finished is not
repeated, so that a killed call continues when it is repeated. OUT/settings.json holds what all runs of a sweep share.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from cerberank_models.checkpoint.bound import SHA256
from cerberank_models.commands.values import Count, Integers
from cerberank_models.output import say, say_written
from cerberank_training.evaluation.per_question import Records, read_records
from cerberank_training.runs.base import open_base
from cerberank_training.runs.content import data_content
from cerberank_training.teachers.teacher_score_cache import MANIFEST, read_manifest

TABLE = "table.md"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of every table."""

    test: tuple[str, ...]
    """Test set as FORMAT:PATH; repeat for several."""
    sample: Count | None = None
    """Number of questions to draw from each test set, with seed 0 (default: all)."""
    seeds: Integers = (1,)
    """Random seeds, such as 1,2,3."""
    out: Path
    """Folder of all runs and of the table."""


Rest = Annotated[str, Parameter(allow_leading_hyphen=True, show=False)]
"""The options of the command that every run calls."""


def contents(base: str, data: Mapping[str, str | None], teachers: Sequence[Path] = ()) -> dict[str, Any]:
    """The identity of the content that all runs of a table read, for its `Bound`: data by their options' names.

    Raises SourceError for a base that is not there, DataError and ScoreCacheError for data that cannot be read.
    """
    scored = [path for path in teachers if (path / MANIFEST).is_file()]  # runs that read others refuse them
    return {
        "contents.base": open_base(base).content(),
        **{f"contents.{name}": data_content(spec) for name, spec in data.items() if spec},
        **{f"contents.{path}": {SHA256: {MANIFEST: read_manifest(path).identity.decode()}} for path in scored},
    }


class RunError(RuntimeError):
    """A command in a process of its own has failed, after a message."""


def run_command(name: str, *arguments: object) -> None:
    """Run a command, such as `train distil`, in a process of its own; raises RunError when it fails."""
    done = subprocess.run([sys.executable, "-m", "cerberank", *name.split(), *map(str, arguments)], check=False)
    if done.returncode:
        raise RunError(f"`cerberank {name}` ended with exit code {done.returncode}; its message stands above")


def evaluate_run(folder: Path, test: str, *, source: tuple[object, ...], sample: int | None) -> None:
    """Evaluate what `source`, options of `cerberank evaluate`, names, unless the run's folder holds the result."""
    out = _records_file(folder, test)
    if not out.is_file():
        drawn = () if sample is None else ("--sample", sample)
        run_command("evaluate", *source, "--data", test, *drawn, "--per-question", out)


def finished(out: Path, name: str, test: str) -> dict[int, Records]:
    """The per-question records of the run `name` on `test`, by seed, of all seeds that are finished."""
    results = {}
    for folder in out.glob(f"{name}-*"):
        seed = folder.name.removeprefix(f"{name}-")  # "hard-*" finds hard-one-head too
        if seed.isdecimal() and (path := _records_file(folder, test)).is_file():
            results[int(seed)] = read_records(path)
    return dict(sorted(results.items()))


def say_table(out: Path, *more: tuple[Path, str]) -> None:
    """Write the table of a sweep, its path, and the paths and contents of `more` files."""
    path = out / TABLE
    say(path.read_text(encoding="utf-8"))
    say_written((path, "this table"), *more)


def _records_file(folder: Path, test: str) -> Path:
    """The file of one test set; a digest keeps sets apart whose files have the same name."""
    form, _, path = test.partition(":")
    stem = re.split(r"[.?]", Path(path).name)[0]
    return folder / f"{form}-{stem}-{hashlib.sha256(test.encode()).hexdigest()[:8]}.jsonl"
