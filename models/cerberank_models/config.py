"""The shape of a ranker, as `config.json` of a checkpoint states it.

In: JSON (unknown keys are refused). Out: frozen models that the encoder, the network, the
exporter and the service read. Pure data: no torch, no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cerberank_models.drop import DropPolicy, RatioSchedule, drop_ratios
from cerberank_models.language import CODE
from cerberank_models.text_config import TextEncodingConfig, TextRankerConfig
from cerberank_models.transformer import (
    Count,
    Frozen,
    OpaqueTransformer,
    PairTemplate,
    PromptTemplate,
    TransformerConfig,
)

LanguageCode = Annotated[str, Field(pattern=CODE.pattern)]
DropRatio = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
"""The fraction of the candidates still alive that an exit drops (CT: alpha)."""

Pooling = Literal["mean", "first", "last"]
Activation = Literal["none", "gelu", "relu", "sigmoid", "silu", "tanh"]


class OpaqueRankerError(ValueError):
    """The layers of a ranker are needed that is one opaque graph; the message says what it can do instead."""


class DenseModule(Frozen):
    """A linear map and its activation."""

    kind: Literal["dense"] = "dense"
    width: Count
    """The numbers that it gives."""
    bias: bool = True
    activation: Activation = "none"


class NormModule(Frozen):
    """A LayerNorm, or a division by the vector's length, neither of which changes the width."""

    kind: Literal["layer_norm", "unit_length"]


HeadModule = Annotated[DenseModule | NormModule, Field(discriminator="kind")]


class ArchitectureConfig(Frozen):
    """`B_b kH_h` (CERBERUS section 3): a shared body of b layers, then k heads of h layers each.

    `heads == 0` is a plain encoder, whose last exit gives the final score (CT).
    """

    body_layers: Annotated[int, Field(ge=0)]
    heads: Annotated[int, Field(ge=0)] = 1
    head_layers: Annotated[int, Field(ge=0)] = 1
    classifier_activation: Literal["tanh", "gelu", "relu"] = "tanh"
    """The activation of the classifier's hidden layer: tanh for BERT's pooler and RoBERTa, gelu for ELECTRA and
    ModernBERT, relu for DistilBERT."""
    classifier_bias: Annotated[bool, Field(exclude_if=lambda bias: bias is True)] = True
    """True if the classifier's hidden layer has a bias; ModernBERT's has none."""
    classifier_pooling: Annotated[Pooling, Field(exclude_if=lambda pooling: pooling == "first")] = "first"
    """The classifier's input: the first token, the mean of all tokens, which needs the whole last layer, or the last
    token, which alone has seen the whole pair in a decoder. Both fields are left out of `config.json` where they say
    what earlier releases take for granted.
    """
    classifier_logits: Literal[1, 2] = 2
    classifier_modules: Annotated[tuple[HeadModule, ...], Field(exclude_if=lambda modules: modules == ())] = ()
    """The modules of a classifier in their order, the last of which gives the logits, where sentence-transformers saved
    it as modules; empty, and left out of `config.json`, for the form that all families share (`network/heads.py`).
    """
    combine: Literal["probability", "logit"] = "probability"
    """The quantity that is averaged over the heads (CERBERUS eq. 5 averages probabilities)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        last = self.classifier_modules[-1:]
        if last and (not isinstance(last[0], DenseModule) or last[0].width != self.classifier_logits):
            raise ValueError(f"the last of classifier_modules must be dense and give {self.classifier_logits} logits")
        return self

    def __str__(self) -> str:
        """The paper's notation, such as `B11 3H1`."""
        return f"B{self.body_layers} {self.heads}H{self.head_layers}"


class ExitConfig(Frozen):
    """A classifier after layer `after` (counted from 1) of the body (CT section 4.3)."""

    after: Count
    pooling: Pooling = "mean"


class EncodingConfig(Frozen):
    """The rules that turn texts into a pair of at most `max_length` tokens; see `encoding.PairEncoder`."""

    max_length: Annotated[int, Field(ge=8)] = 128
    question_length: Annotated[int, Field(ge=1)] = 64
    """Most tokens that the question may take; the candidate gets the rest. `longest_first` does not read it."""
    truncation: Literal["last_first", "longest_first"] = "last_first"
    """The part that a pair loses when it is too long: first its context, then the candidate's end; or the ends of its
    longest segments, as Hugging Face's tokenizers cut (`longest_first`).
    """
    segments: Literal[2, 3] = 2
    """2: question and candidate; 3: the previous and next sentence follow as a third segment (SSP section 3)."""
    template: Annotated[PairTemplate | None, Field(exclude_if=lambda template: template is None)] = None
    """The special tokens of an opaque network's pairs; None, and left out of `config.json`, for those of the family."""
    prompt: Annotated[PromptTemplate | None, Field(exclude_if=lambda prompt: prompt is None)] = None
    """The text around a decoder's question and candidate; None, and left out of `config.json`, for encoders."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.question_length > self.max_length - 7:
            raise ValueError("question_length must leave room for a candidate: at most max_length - 7")
        return self


class Stage(Frozen):
    """A run of body layers `[start, stop)` that ends in a score."""

    start: int
    stop: int
    kind: Literal["exit", "heads"]


class TunedSchedule(Frozen):
    """A drop schedule that `tune` or `accelerate` measured on held-out questions: what it costs and still reaches."""

    schedule: tuple[DropRatio, ...]
    cost: Annotated[float, Field(gt=0.0, le=1.0)]
    """Layers run relative to dropping nothing, in the limit of many candidates (`drop.relative_cost`)."""
    metrics: dict[str, Annotated[float, Field(allow_inf_nan=False)]]
    """In percent. `tune`, on labels: `map`, `mrr`, ..., and `map_loss`, the points of MAP lost against dropping
    nothing, with its standard error `map_loss_error`, means over the dev sets. `accelerate`, which has no labels,
    against the model's own ranking: `top1_agreement`, `overlap@5` and their mean `agreement`, with `agreement_loss`."""


class RankerConfig(Frozen):
    """Everything that `config.json` says: enough to rebuild the network and to serve it."""

    model_type: Literal["cerberank"] = "cerberank"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    transformer: Annotated[TransformerConfig | OpaqueTransformer, Field(discriminator="family")]
    architecture: ArchitectureConfig
    exits: tuple[ExitConfig, ...] = ()
    encoding: EncodingConfig = EncodingConfig()
    first_stage: TextRankerConfig | None = None
    """Ranks all candidates before any is read as a pair; the other stages are numbered from 1 then.

    It ranks alone where the network of pairs has no layers (`B0 0H0`), exits and heads."""
    drop_schedule: tuple[DropRatio, ...] = ()
    """Default drop ratio of every stage but the last, the first stage included; empty means that nothing is dropped."""
    drop_minimum: Count = 1
    """The least number of candidates that this checkpoint's own schedules leave alive. An early exit that reliably
    finds the worse half of 200 candidates is wrong too often about the worse half of ten, where dropping saves
    nothing."""
    tuned_schedules: tuple[TunedSchedule, ...] = ()
    """Schedules to choose from under load, the costliest and most accurate first; empty before `train tune`."""
    languages: Annotated[tuple[LanguageCode, ...], Field(exclude_if=lambda languages: languages == ())] = ()
    """The languages of the texts that it is for; empty, and left out of `config.json`, where none is stated."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        body, heads = self.architecture.body_layers, self.architecture.heads
        depth = body + (self.architecture.head_layers if heads else 0)
        after = [exit_.after for exit_ in self.exits]
        if depth != self.transformer.layers:
            raise ValueError(f"{self.architecture} needs {depth} layers, the encoder has {self.transformer.layers}")
        if after != sorted(set(after)) or (after and after[-1] > body):
            raise ValueError(f"exits must come after distinct, ascending body layers 1..{body}")
        if depth == 0 and (heads or self.first_stage is None):
            raise ValueError("a network without layers has no heads, and a first stage that ranks alone")
        if heads == 0 and depth and (not after or after[-1] != body):
            raise ValueError("a plain encoder (heads = 0) needs an exit after its last layer")
        exits = self.scored_stages - 1
        if self.drop_schedule and len(self.drop_schedule) != exits:
            raise ValueError(f"drop_schedule needs {exits} ratios, one per stage but the last")
        for tuned in self.tuned_schedules:
            if len(tuned.schedule) != exits:
                raise ValueError(f"every tuned schedule needs {exits} ratios, one per stage but the last")
        costs = [tuned.cost for tuned in self.tuned_schedules]
        if costs != sorted(costs, reverse=True):
            raise ValueError("tuned_schedules must go from the costliest to the cheapest")
        room = self.transformer.max_positions - self.transformer.position_offset
        if self.encoding.max_length > room:
            raise ValueError(f"max_length {self.encoding.max_length} exceeds the encoder's {room} positions")
        if isinstance(self.transformer, OpaqueTransformer):
            self._check_opaque()
        self._check_decoder()
        if self.first_stage is not None:
            self._check_first_stage(self.first_stage)
        return self

    def _check_first_stage(self, first: TextRankerConfig) -> None:
        """Raise ValueError for a text ranker that needs both texts, or windows, which this stage does not read."""
        if first.joint:
            raise ValueError("a joint text ranker reads question and candidate together: it cannot be a first stage")
        if first.encoding.document_length > first.encoding.window:
            raise ValueError("a first stage reads a candidate at once: document_length must not exceed window")

    def _check_decoder(self) -> None:
        """Raise ValueError for what a decoder needs and has not, or what an encoder has and does not need."""
        decodes = isinstance(self.transformer, TransformerConfig) and self.transformer.decoder is not None
        if decodes != (self.encoding.prompt is not None):
            raise ValueError("a decoder needs encoding.prompt, which nothing else reads")
        read = [exit_.pooling for exit_ in self.exits]
        read += [self.architecture.classifier_pooling] if self.architecture.heads else []
        if any((pooling == "last") != decodes for pooling in read):
            raise ValueError("a decoder's exits and classifier read the last token, others do not")
        if decodes and (self.encoding.segments != 2 or (self.architecture.heads and self.architecture.head_layers)):
            raise ValueError("a decoder reads pairs of two segments, and its heads have no layers")

    def _check_opaque(self) -> None:
        """Raise ValueError for what an opaque graph cannot have."""
        if self.architecture.heads or len(self.exits) != 1:
            raise ValueError("an opaque network has no heads, and one exit after its last layer")
        if self.first_stage is not None:
            raise ValueError("an opaque network takes no first stage: what its layers cost is not known")
        if self.encoding.template is None or self.encoding.segments != 2:
            raise ValueError("an opaque network needs encoding.template, and pairs of two segments")

    @property
    def body(self) -> TransformerConfig:
        """The encoder's shape, for whatever builds, reads or changes its layers. Raises OpaqueRankerError without."""
        if isinstance(self.transformer, OpaqueTransformer):
            raise OpaqueRankerError(
                f"{self.name} is an opaque graph ({self.transformer.model_type}), whose layers are not known: it can "
                "be served by the onnx backend and evaluated, and not run by torch, trained, cut or read back"
            )
        return self.transformer

    @property
    def takes_instruction(self) -> bool:
        """True if a question may come with an instruction."""
        return self.encoding.prompt is not None and bool(self.encoding.prompt.instruction)

    @property
    def score_form(self) -> str:
        """The meaning of a score of the last stage, in words; it lies between 0 and 1 in every model."""
        architecture, prompt = self.architecture, self.encoding.prompt
        if self.first_stage is not None and not self.reads_pairs:
            return self.first_stage.score_form
        if prompt is not None and prompt.no is not None:
            form = f"probability of the token {prompt.yes!r} against {prompt.no!r}"
        elif prompt is not None:
            form = f"sigmoid of the logit of the token {prompt.yes!r}"
        elif architecture.classifier_logits == 2 and (architecture.heads or self.transformer.family == "opaque"):
            form = "probability of the second of two labels"
        else:
            form = "sigmoid of the logit"
        if prompt is not None and prompt.divisor != 1:
            form += f" divided by {prompt.divisor:g}"
        return f"mean of {architecture.heads} heads, each the {form}" if architecture.heads > 1 else form

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of pairs in order: one per exit, then the heads if there are any."""
        stops = [exit_.after for exit_ in self.exits]
        stages = [Stage(start=start, stop=stop, kind="exit") for start, stop in zip([0, *stops], stops, strict=False)]
        if self.architecture.heads:
            start = stops[-1] if stops else 0
            stages.append(Stage(start=start, stop=self.architecture.body_layers, kind="heads"))
        return tuple(stages)

    @property
    def stage_layers(self) -> tuple[float, ...]:
        """The cost of each stage of pairs, in layers of the body.

        A head's last layer runs its queries and feed-forward on the first token alone; all heads' last layers
        together count as half a layer. Where the classifier reads the mean of all tokens, every layer is a whole one.
        """
        layers = [float(stage.stop - stage.start) for stage in self.stages]
        heads, depth = self.architecture.heads, self.architecture.head_layers
        if heads and depth:
            layers[-1] += (depth - 1) * heads + (0.5 if self.architecture.classifier_pooling == "first" else heads)
        return tuple(layers)

    @property
    def reads_pairs(self) -> bool:
        """False where the first stage ranks alone."""
        return bool(self.stages)

    @property
    def candidate_encoding(self) -> EncodingConfig | TextEncodingConfig:
        """The lengths that cut candidates: a pair's, or a text's where the first stage ranks alone."""
        return self.first_stage.encoding if self.first_stage is not None and not self.reads_pairs else self.encoding

    @property
    def scored_stages(self) -> int:
        """The number of stages as answers, schedules and metrics count them: with the first stage, if there is one."""
        return len(self.stages) + (self.first_stage is not None)

    @property
    def scored_stage_layers(self) -> tuple[float, ...]:
        """The cost of each scored stage per token, in layers of the body.

        A layer counts by the weights of its linear maps; a first stage is counted as if no vector were known.
        """
        if self.first_stage is None:
            return self.stage_layers
        first = self.first_stage.transformer
        if not self.reads_pairs:
            return (float(first.layers),)
        return (first.layers * _linear_weights(first) / _linear_weights(self.body), *self.stage_layers)

    @property
    def schedule(self) -> tuple[float, ...]:
        """The default drop schedule, one ratio per scored stage but the last."""
        return self.drop_schedule or (0.0,) * (self.scored_stages - 1)

    def drop_policy(
        self,
        given: float | Sequence[float] | None = None,
        *,
        default: Sequence[float] | None = None,
        keep: int = 1,
    ) -> DropPolicy:
        """The drop policy for ratios that a caller gives (`drop.drop_ratios`); it leaves at least `keep` candidates.

        None means the `default` schedule, or else this checkpoint's, which also leaves at least `drop_minimum`
        candidates. Raises ValueError for ratios that do not fit the exits.
        """
        ratios = drop_ratios(given, self.schedule if default is None else default)
        return RatioSchedule(ratios, max(keep, self.drop_minimum) if given is None else keep)


def _linear_weights(transformer: TransformerConfig) -> float:
    """Weights of one layer's linear maps: four of attention and those of the feed-forward."""
    width = transformer.hidden_size
    return float(width * (4 * width + transformer.feed_forward_maps * transformer.intermediate_size))
