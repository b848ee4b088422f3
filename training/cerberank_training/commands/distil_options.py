"""The options of `train distil`. Importing them loads no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from cerberank_models.commands.values import DataSpec, Names
from cerberank_training.evaluation.dev_options import RECIPE_HELP, DevQuestions, Select, data_help
from cerberank_training.learning.student_settings import StudentConfig, StudentSettings
from cerberank_training.runs.settings import RunOptions

RESULT = Group("Evaluation and result", sort_key=5)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DistilOptions:
    """The options of `train distil`."""

    recipe: Annotated[str, Parameter(help=RECIPE_HELP)]
    base: str
    """Encoder, cross-encoder or checkpoint: folder or hub id."""
    train: Annotated[DataSpec | None, Parameter(help=data_help("Questions to train on"))] = None
    groups: DataSpec | None = None
    """Groups of `data sample`, instead of --train."""
    dev: DataSpec
    """Questions that choose the weights."""
    teacher: tuple[Path, ...] = ()
    """Teacher: folder or hub id of a model, or the cache of its scores that `data score` made; repeat for several."""
    out: Path
    """Folder of the run, with OUT/checkpoint."""
    run: RunOptions = field(default_factory=RunOptions)
    dev_questions: Annotated[DevQuestions, Parameter(group=RESULT)] = None
    select: Annotated[Select, Parameter(group=RESULT)] = "map"
    forms: Annotated[Names | None, Parameter(group=RESULT)] = None
    """ONNX forms beside the weights, or none (default: fp32,int8)."""
    name: Annotated[str | None, Parameter(group=RESULT)] = None
    """Name of the model in stores and services (default: the name of OUT)."""
    version: Annotated[str | None, Parameter(group=RESULT)] = None
    """Version in stores and services (default: strategy, steps, seed and a digest of the run)."""
    terms: Annotated[str | None, Parameter(group=RESULT)] = None
    """Licence and terms of the data: text, or a file."""
    settings: StudentSettings = field(default_factory=StudentSettings)

    @property
    def training(self) -> StudentConfig:
        """The settings of the loop."""
        return self.settings.train

    @property
    def data(self) -> str:
        """The questions that are trained on, as FORMAT:PATH."""
        return self.groups or self.train or ""
