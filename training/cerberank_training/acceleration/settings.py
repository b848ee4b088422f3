"""The options of `train accelerate`, and its result. Importing them loads no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import Parameter

from cerberank_models.commands.values import Count, DataSpec, Integers, OnnxForms, Percent, Positive, Share, Whole
from cerberank_models.config import Pooling
from cerberank_training.evaluation.schedule_search import Tuning
from cerberank_training.runs.settings import RunOptions, TrainConfig

if TYPE_CHECKING:
    from cerberank_training.acceleration.schedule import FormAgreement

EXAMPLES_PER_STEP = 8
"""The number of questions of a step. With 32 the exits learn the order worse in as many epochs (decision 0011)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AccelerateOptions:
    """The options of `train accelerate`."""

    data: DataSpec
    """Questions with candidates, of the kind and length that will be ranked: FORMAT:PATH, or a file as `cerberank rank`
    reads it. Labels are not used."""
    out: Path
    """Checkpoint folder to make."""
    version: str | None = None
    """Version of the new folder (default: the old one's with -accelerated)."""
    exits: Integers = ()
    """Layers to add an exit after, such as 2,4 (default: after one to four sixths of all layers)."""
    pooling: Pooling | None = None
    """Vector that exits read: the mean of the tokens, or the first or last token (default: the mean, and of a decoder
    the last token)."""
    token_features: Whole | None = None
    """Number of features of single tokens whose mean exits read too (default: 32, and 0 for a decoder)."""
    epochs: Positive = 10
    """Number of passes over the questions."""
    learning_rate: Positive = 1e-3
    """Highest learning rate."""
    seed: Whole = 1
    """Random seed."""
    held_out: Count = 300
    """Number of questions, from the end of the file, that choose the schedule and are not trained on (at least 20)."""
    max_loss: Percent | None = None
    """Largest loss in points of agreement (default: 3, unless --max-cost is given)."""
    max_cost: Share | None = None
    """Largest cost, as a share of the layers that run without drops: 0.5 is half of them."""
    minimum: Count = 1
    """Least number of candidates that a schedule keeps."""
    run: RunOptions = field(default_factory=RunOptions)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Precision in which the hidden states are computed."""
    forms: OnnxForms = ("fp32", "int8")
    """ONNX forms to write beside the weights, separated by commas; none for weights alone."""
    gate_questions: Count = 100
    """Number of held-out questions that check each form."""
    min_agreement: Percent = 95.0
    """Least share of --gate-questions with the same first candidate, in percent."""

    @property
    def training(self) -> TrainConfig:
        """The settings of the loop."""
        return TrainConfig(
            epochs=self.epochs,
            examples_per_step=EXAMPLES_PER_STEP,
            evaluate_every=0.1,
            learning_rate=self.learning_rate,
            warmup=0.0,
            clip=0.0,
            precision="fp32",
            seed=self.seed,
        )

    @property
    def select(self) -> str:
        """The measure on the held-out questions: the agreement of the exits with the model's own order."""
        return "agreement"

    @property
    def recipe(self) -> None:
        """There are no recipes."""

    @property
    def work(self) -> Path:
        """The folder of the run, which may be removed after it."""
        return self.out.with_name(f"{self.out.name}.work")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerated:
    """A checkpoint with exits and a drop schedule."""

    checkpoint: Path
    tuning: Tuning
    """As of `tune`, against the model's own ranking."""
    forms: Mapping[str, FormAgreement]
    """The agreement of the weights and of each ONNX form, with the schedule, with the model's own ranking."""
