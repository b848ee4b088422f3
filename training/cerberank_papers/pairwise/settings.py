"""All options of `train pairwise`, which are keys of recipes too, and what a record binds. Importing loads no torch.

Annotations are evaluated here, because cyclopts reads those of `TrainConfig` in the modules of its subclasses.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from cerberank_models.commands.values import RECIPE_KEY, Count, DataSpec, NotNegative, Positive, Share
from cerberank_models.text_config import TextEncodingConfig
from cerberank_training.learning.settings import Layers, Select
from cerberank_training.runs.settings import RECIPE_HELP, DevQuestions, Precision, RunOptions, TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class System:
    """A row of TRMD's table 2: the rankers of a network, and its teachers."""

    joint: bool = False
    first_ranker: Literal["linear", "residual"] | None = None
    token_ranker: Literal["twin", "colbert"] | None = None
    taught: bool = False
    """True if monoBERT, and a bi-encoder with the same token ranker, teach the network."""


SYSTEMS: Mapping[str, System] = MappingProxyType(
    {
        "mono": System(joint=True, first_ranker="linear"),
        "twin": System(token_ranker="twin"),
        "colbert": System(token_ranker="colbert"),
        "tr-twin": System(first_ranker="residual", token_ranker="twin"),
        "tr-colbert": System(first_ranker="residual", token_ranker="colbert"),
        "trmd-twin": System(first_ranker="residual", token_ranker="twin", taught=True),
        "trmd-colbert": System(first_ranker="residual", token_ranker="colbert", taught=True),
        "trmd-joint-twin": System(joint=True, first_ranker="residual", token_ranker="twin", taught=True),
        "trmd-joint-colbert": System(joint=True, first_ranker="residual", token_ranker="colbert", taught=True),
    }
)
"""The systems by name: three teachers, students without distillation (tr) and with it, cross-encoder students."""


def released_settings(system: System) -> dict[str, str]:
    """The options of `train pairwise` in which TRMD's released code differs from the paper, as they are typed."""
    representations = "post_residual" if system.token_ranker == "twin" else "projected"
    return {"hard": "softmax", "representations": representations, "mean": "text", "learning_rate": "2e-5"}


def _check_system(type_: Any, name: str) -> None:
    if name not in SYSTEMS:
        raise ValueError(f"Choose from {', '.join(SYSTEMS)}.")


@Parameter(name="*", group=Group("Schedule", sort_key=2), show_default=False)
@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseConfig(TrainConfig):
    """The settings of a run: Adam without decay of weights or rates, for all weights (TRMD section 3.1.3)."""

    examples_per_step: Count = 32
    """Triples of a step, of all processes together."""
    learning_rate: Positive = 1e-6
    """Highest learning rate of the encoder."""
    fresh_learning_rate: Positive = 1e-3
    """Highest learning rate of the rankers."""
    warmup: NotNegative = 0.0
    decay: Annotated[bool, Parameter(parse=False)] = False
    weight_decay: NotNegative = 0.0
    dropout: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.1
    """Dropout of the whole network."""
    precision: Precision = "fp32"

    @property
    def rates(self) -> dict[str, float]:
        """The rate of the encoder, and of the rankers on top of it."""
        return {"learning_rate": self.learning_rate, "fresh_learning_rate": self.fresh_learning_rate}


@dataclass(frozen=True, kw_only=True, slots=True)
class PairwiseObjective:
    """The settings of the loss, and its options; the defaults are the paper's. Without teachers it is TRMD's TR."""

    hard: Literal["hinge", "softmax"] = "hinge"
    """Loss on labels: a hinge on the softmax of both scores, or 1 - the positive's softmax."""
    margin: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Margin of the hinge loss."""
    # The encoder's output for every token is equation 5; the released code uses the last two, each for its bi-encoder.
    representations: Annotated[Literal["encoder", "projected", "post_residual"], RECIPE_KEY] = "encoder"
    """Vectors to learn from the bi-encoder: the encoder's, ColBERT's projected ones, or TwinBERT's one vector."""
    hard_weight: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Weight of the loss on labels."""
    cls_weight: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Weight of the loss between the first tokens' vectors."""
    representation_weight: Annotated[NotNegative, RECIPE_KEY] = 1.0
    """Weight of the loss between the representations."""


@Parameter(name="*", group=Group("Losses: the paper's, unless --released is given", sort_key=1), show_default=False)
@dataclass(frozen=True, kw_only=True)
class LossOptions(PairwiseObjective):
    """Settings of the losses, and of what they read."""

    released: bool = False
    """Take the losses, the learning rate and TwinBERT's mean from TRMD's released code."""
    mean: Annotated[Literal["all", "text"], RECIPE_KEY] = "all"
    """Tokens of TwinBERT's mean: all, or all except special ones (text)."""
    colbert_texts: bool = False
    """Prepare texts as ColBERT does: marked as question or document, questions filled with [MASK], no punctuation."""


@Parameter(name="*", group=Group("Lengths, in tokens without special ones", sort_key=3), show_default=False)
@dataclass(frozen=True, kw_only=True)
class TextLengthOptions:
    """Settings of the texts that are read."""

    question_length: Count = 64
    """Most tokens of a question."""
    document_length: Count = 800
    """Most tokens of a document."""
    window: Count = 384
    """Most tokens of a window of a long document."""

    @property
    def encoding(self) -> TextEncodingConfig:
        """The rules by which texts become token ids."""
        return TextEncodingConfig(**asdict(self))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TripleSampling:
    """The sources of positives and negatives."""

    # TRMD lists them: a question whose list has none is replaced by the next question.
    positives: Literal["listed", "any"] = "listed"
    """Relevant texts to draw positives from: those among BM25's best (listed), or all (any)."""
    top: Count = 100
    """Number of BM25's best texts to draw from."""
    # For squad-as2 own candidates are the sentences of the answer's paragraph, and for TREC data the run.
    own_share: Share = 0.0
    """Share of triples from the question's own candidates instead of BM25's list; with 1, BM25 is not used."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PairwiseOptions:
    """The options of `train pairwise`."""

    recipe: Annotated[str | None, Parameter(help=RECIPE_HELP)] = None
    system: Annotated[str, Parameter(help=f"System of the paper: {', '.join(SYSTEMS)}.", validator=_check_system)]
    base: str
    """Path or hub id of an encoder."""
    layers: Layers | None = None
    train: DataSpec
    """Questions to draw triples from, as FORMAT:PATH."""
    triples: TripleSampling = field(default_factory=TripleSampling)
    dev: DataSpec
    """Questions to choose weights by, as FORMAT:PATH."""
    dev_questions: DevQuestions = None
    select: Select = "map"
    mono: Path | None = None
    """Folder of the monoBERT teacher, for trmd-*."""
    bi: Path | None = None
    """Folder of the TwinBERT or ColBERT teacher, for trmd-*."""
    out: Path
    """Folder of the run; the result is OUT/ranker."""
    run: RunOptions = field(default_factory=RunOptions)
    loss: LossOptions = field(default_factory=LossOptions)
    training: PairwiseConfig = field(default_factory=PairwiseConfig)
    lengths: TextLengthOptions = field(default_factory=TextLengthOptions)
