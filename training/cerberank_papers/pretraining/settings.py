"""All options of `train pretrain`, which are keys of recipes too, and what a record binds. Importing loads no torch.

Annotations are evaluated here, because cyclopts reads those of `TrainConfig` in the modules of its subclasses.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from cyclopts import Parameter

from cerberank_models.commands.values import RECIPE_KEY, Count, DataSpec, Interval, NotNegative, Positive
from cerberank_models.config import NewTypes
from cerberank_papers.pretraining.documents import READERS
from cerberank_papers.pretraining.examples import GROUP, Objective
from cerberank_training.learning.settings import Layers
from cerberank_training.runs.settings import RECIPE_HELP, RunOptions, TrainConfig

METRICS = ("ssp_accuracy", "ssp_first", "ssp_hard")
"""The figures of the binary head, in percent. The last is only measured if there are hard negatives."""
Choice = Literal["last", "ssp_accuracy", "ssp_first", "ssp_hard"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class LossWeights:
    """The weight of each loss in the sum, as options of `train pretrain`."""

    ssp: Annotated[NotNegative, Parameter(name="ssp-weight")] = 1.0
    """Weight of SSP's loss; with 0, language modelling alone is trained."""
    mlm: Annotated[NotNegative, Parameter(name="mlm-weight")] = 1.0
    """Weight of masked language modelling; 0 for none."""
    rtd: Annotated[NotNegative, Parameter(name="rtd-weight")] = 50.0
    """Weight of ELECTRA's replaced-token detection; 0 for none."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class PretrainingConfig(TrainConfig):
    """The length and learning rates of a run; the defaults are the paper's (SSP appendix C)."""

    unit: ClassVar[int] = GROUP
    steps: Count = 400_000
    examples_per_step: Count = 4080
    """Examples of a step, of all processes together; a multiple of 5 (the paper: 4096)."""
    learning_rate: Positive = 1e-4
    warmup: NotNegative = 10_000
    max_length: Count = 128
    """Most tokens of an example."""
    evaluate_every: Interval = 1000

    def __post_init__(self) -> None:
        """Raise ValueError for a step without whole groups, and for a warm-up that is longer than the run."""
        TrainConfig.__post_init__(self)  # `super()` fails in a dataclass with slots
        if self.examples_per_step < GROUP or self.examples_per_step % GROUP:
            raise ValueError(f"--examples-per-step must be a multiple of {GROUP}, not {self.examples_per_step}")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """The options of `train pretrain`; the defaults of training are the paper's."""

    recipe: Annotated[str | None, Parameter(help=RECIPE_HELP)] = None
    objective: Objective
    """SSP's objective, which is the context of an example: the document's first paragraph (sdc), the rest of the
    paragraph (dpc), the neighbouring sentences (dslc), or all in turn."""
    whole_negatives: Annotated[bool, RECIPE_KEY] = False
    """Keep every sentence in the paragraphs of negatives, as in the paper; lengths then reveal some of the answers."""
    base: str
    """Path or hub id of BERT, RoBERTa or ELECTRA's discriminator."""
    generator: str | None = None
    """Path or hub id of ELECTRA's generator (default: a new, narrow one)."""
    layers: Layers | None = None
    token_types: NewTypes = "fresh"
    """Start of token types that the base lacks: random rows (fresh), copies of the last row (copied), or a new random
    table (anew, as in SSP)."""
    documents: Annotated[DataSpec, Parameter(help=f"Documents as FORMAT:PATH; FORMAT is one of {', '.join(READERS)}.")]
    dev: DataSpec
    """Held-out documents to measure on, as FORMAT:PATH."""
    dev_groups: Count = 100
    """Number of groups of five examples to draw from --dev."""
    select: Choice = "last"
    """Weights to write: those of the last step, or the best by a figure on dev."""
    out: Path
    """Folder of the encoder."""
    run: RunOptions = field(default_factory=RunOptions)
    weights: LossWeights = field(default_factory=LossWeights)
    training: PretrainingConfig = field(default_factory=PretrainingConfig)
