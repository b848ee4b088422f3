"""`cerberank.train`: `train distil` as a function. Importing it loads no torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cerberank_training.runs.trained import Trained


def train(
    recipe: str,
    *,
    base: str | Path,
    dev: str,
    train: str | None = None,
    groups: str | None = None,
    teachers: Sequence[str | Path] = (),
    out: str | Path | None = None,
    device: str = "auto",
    forms: Sequence[str] | None = None,
    name: str | None = None,
    version: str | None = None,
    terms: str | None = None,
    **settings: Any,
) -> Trained:
    """Train a student by a recipe (a name, or a TOML file) on labels or teachers' scores, as `cerberank train distil`.

    `train`, `groups` and `dev` are FORMAT:PATH; `teachers` are folders of scores; `out` is the run's folder (default:
    the recipe's name, here). `settings` replace those of the recipe, by the names of the command's options:
    `steps=100, learning_rate=2e-5`. A run that was killed continues when it is called again.

    Raises ValueError, which names the option, and OSError for files.
    """
    from cerberank_training.commands.distil import student_options, train_student  # noqa: PLC0415 - loads torch
    from cerberank_training.commands.presets import as_words  # noqa: PLC0415 - loads torch

    stem = Path(recipe).stem if recipe.endswith(".toml") else recipe
    single = {
        **{"recipe": recipe, "base": base, "dev": dev, "train": train, "groups": groups, "out": out or stem},
        **{"device": device, "forms": forms, "name": name, "version": version, "terms": terms},
    }
    words = as_words({name: value for name, value in (single | settings).items() if value is not None})
    return train_student(student_options([*words, *(f"--teacher={folder}" for folder in teachers)]))
