"""The model card of a student: its architecture, its data and recipe, its accuracy on dev."""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cerberank_models.config import ArchitectureConfig
from cerberank_training.data.sampling import PairSampling
from cerberank_training.students.recipes import Recipe

CARD = """# {name}

A CERBERUS ranker `{architecture}` for answer sentence selection, written by
`cerberank distil` on {date} (commit {commit}).

| | |
|---|---|
| base | `{base}` |
| data | `{data}` |
| chosen on | `{dev}`, best MAP {best:.2f} |
| strategy | `{strategy}`, teachers: {teachers} |
| seed | {seed} |

Data terms, licence, intended use and figures on test sets are to be added before the checkpoint is given away.

## Recipe

```json
{recipe}
```
"""


def student_card(recipe: Recipe, architecture: ArchitectureConfig, arguments: argparse.Namespace, best: float) -> str:
    """The card in Markdown; paths are cut to file names, because cards are published."""
    settings = {"recipe": arguments.recipe} | settings_of(recipe)
    if arguments.groups:  # the recipe's sampling was not used
        del settings["sampling"]
    return CARD.format(
        name=recipe.shape.name,
        architecture=architecture,
        date=datetime.now(UTC).date().isoformat(),
        commit=_commit(),
        base=Path(arguments.base).name,
        data=_name(arguments.groups or arguments.train),
        dev=_name(arguments.dev),
        best=best,
        strategy=recipe.objective.strategy,
        teachers=", ".join(f"`{path.name}`" for path in arguments.teacher) or "none",
        seed=recipe.train.seed,
        recipe=json.dumps(settings, indent=2),
    )


def settings_of(recipe: Recipe) -> dict[str, Any]:
    """All settings of a run but for its base, data and shape, as they are written in JSON."""
    mode = "pairs" if isinstance(recipe.sampling, PairSampling) else "grouped"
    return {
        "encoding": recipe.shape.encoding.model_dump(),
        "objective": asdict(recipe.objective),
        "sampling": {"mode": mode} | asdict(recipe.sampling),
        "train": asdict(recipe.train),
    }


def _name(spec: str) -> str:
    format_, _, path = spec.partition(":")
    return f"{format_}:{Path(path).name}"


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
