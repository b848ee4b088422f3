"""The shape of a ranker, as `config.json` of a checkpoint states it.

The models are frozen, reject unknown keys, and are read by the encoder, the network, the exporter and the service.
This module holds data only: it imports no torch and opens no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cerberank_models.drop import DropPolicy, RatioSchedule, drop_ratios
from cerberank_models.language import CODE
from cerberank_models.text_config import QuestionPart, TextEncodingConfig, TextRankerConfig
from cerberank_models.transformer import (
    Count,
    Frozen,
    OpaqueTransformer,
    PairTemplate,
    PromptTemplate,
    TransformerConfig,
)
from cerberank_models.windows import Reading

LanguageCode = Annotated[str, Field(pattern=CODE.pattern)]
DropRatio = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
"""The fraction of the candidates still alive that an exit drops (CT: alpha)."""

Pooling = Literal["mean", "first", "last"]
NewTypes = Literal["fresh", "copied", "anew"]
"""The start of rows that a table of token types lacks: random, copies of the last row, or a whole random table."""
Activation = Literal["none", "gelu", "relu", "sigmoid", "silu", "tanh"]


MetricName = Annotated[str, Field(pattern=r"^[\w@.+-]{1,64}$")]
MOST_SCHEDULES, MOST_METRICS = 64, 64
"""The most tuned schedules, and the most different metrics of them. Each is a series of the service."""


SCHEDULES = frozenset({"drop_schedule", "drop_minimum", "lexical_ratio", "longer_lists", "tuned_schedules"})
"""The fields of a ranker that hold its drop schedules, which fit its exits and its data only."""


class OpaqueRankerError(ValueError):
    """The operation needs the ranker's layers, but the ranker is one opaque graph; the message says what works."""


class DenseModule(Frozen):
    """A linear map and the activation that follows it."""

    kind: Literal["dense"] = "dense"
    width: Count
    """The output width."""
    bias: bool = True
    activation: Activation = "none"


class NormModule(Frozen):
    """A LayerNorm, or a division by the vector's length. Both keep the width."""

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
    """The activation of the classifier's hidden layer: tanh in BERT's pooler and in RoBERTa, gelu in ELECTRA and
    ModernBERT, relu in DistilBERT."""
    classifier_bias: Annotated[bool, Field(exclude_if=lambda bias: bias is True)] = True
    """True if the classifier's hidden layer has a bias; False for ModernBERT. Omitted from `config.json` if True."""
    classifier_pooling: Annotated[Pooling, Field(exclude_if=lambda pooling: pooling == "first")] = "first"
    """The classifier's input: the first token; the mean of all tokens, which needs the whole last layer; or the last
    token, the only token of a decoder that attends to the whole pair. Omitted from `config.json` at its default.
    """
    classifier_logits: Literal[1, 2] = 2
    classifier_modules: Annotated[tuple[HeadModule, ...], Field(exclude_if=lambda modules: modules == ())] = ()
    """The modules of a classifier that sentence-transformers saved as modules, in order; the last one gives the logits.
    Empty, and omitted from `config.json`, for the classifier that all families share (`network/heads.py`).
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
    token_features: Annotated[int, Field(ge=0, exclude_if=lambda width: width == 0)] = 0
    """The width of a layer with GELU that the exit applies to every token, and whose mean it reads beside the pooled
    vector. Early layers know token by token what matches the question, which a mean of their states mixes up. 0, and
    omitted from `config.json`, for the paper's exit."""


class EncodingConfig(Frozen):
    """The rules by which `encoding.PairEncoder` makes texts into a pair of at most `max_length` tokens."""

    max_length: Annotated[int, Field(ge=8)] = 128
    question_length: Annotated[int, Field(ge=1)] = 64
    """The most tokens of the question, whose end is left if it has more; the candidate gets the rest. Ignored if
    `truncation` is `longest_first`."""
    truncation: Literal["last_first", "longest_first"] = "last_first"
    """The part of a pair that is cut when it is too long. `last_first` cuts the context, then the candidate's end;
    `longest_first` cuts the ends of the longest segments, as Hugging Face's tokenizers do.
    """
    windows: Annotated[Reading, Field(exclude_if=lambda reading: reading == "best")] = "best"
    """The reading of candidates that do not fit, where a request or an option names none: the best or the mean score of
    their windows, or `off`, which cuts them. Omitted from `config.json` at its default."""
    segments: Literal[2, 3] = 2
    """2: question and candidate. 3: the previous and the next sentence follow as a third segment (SSP section 3)."""
    template: Annotated[PairTemplate | None, Field(exclude_if=lambda template: template is None)] = None
    """The special tokens of an opaque network's pairs. None, and omitted from `config.json`, for the family's own."""
    prompt: Annotated[PromptTemplate | None, Field(exclude_if=lambda prompt: prompt is None)] = None
    """The text around a decoder's question and candidate. None, and omitted from `config.json`, for encoders."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.question_length > self.max_length - 7:
            raise ValueError("question_length must leave room for a candidate: at most max_length - 7")
        return self

    @property
    def question_part(self) -> QuestionPart:
        """The part that is read of a question beyond its limit."""
        return "end" if self.truncation == "last_first" else "start"

    @property
    def question_limit(self) -> int:
        """The most tokens of a question."""
        return self.question_length if self.truncation == "last_first" else self.max_length


class Stage(Frozen):
    """A run of body layers `[start, stop)` that ends in a score."""

    start: int
    stop: int
    kind: Literal["exit", "heads"]


LexicalRatio = Annotated[DropRatio, Field(exclude_if=lambda ratio: ratio == 0.0)]
"""The fraction of the candidates that the lexical layer drops before the first stage (`lexical.py`); omitted if 0."""


class DropSchedule(Frozen):
    """The shares of the candidates that are dropped before and after the stages."""

    schedule: tuple[DropRatio, ...] = ()
    """One ratio for every stage but the last. Empty: nothing is dropped after a stage."""
    lexical_ratio: LexicalRatio = 0.0


class TunedSchedule(DropSchedule):
    """A drop schedule that `tune` or `accelerate` measured on held-out questions, with its cost and its metrics."""

    schedule: tuple[DropRatio, ...]
    cost: Annotated[float, Field(gt=0.0, le=1.0)]
    """Layers run, relative to dropping nothing, in the limit of many candidates (`drop.relative_cost`)."""
    metrics: dict[MetricName, Annotated[float, Field(allow_inf_nan=False)]]
    """In percent. `tune` measures against labels: `map`, `mrr`, ..., and `map_loss`, the points of MAP lost against
    dropping nothing, with its standard error `map_loss_error`, as means over the dev sets. `accelerate` has no labels
    and measures against the model's own ranking: `top1_agreement`, `overlap@5`, their mean `agreement`, and
    `agreement_loss`."""


class ListSchedule(DropSchedule):
    """The default drop schedule of questions with at least `candidates` distinct candidates."""

    candidates: Count


class RankerConfig(Frozen):
    """The content of `config.json`, from which the network can be rebuilt and served."""

    model_type: Literal["cerberank"] = "cerberank"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    transformer: Annotated[TransformerConfig | OpaqueTransformer, Field(discriminator="family")]
    architecture: ArchitectureConfig
    exits: tuple[ExitConfig, ...] = ()
    encoding: EncodingConfig = EncodingConfig()
    first_stage: TextRankerConfig | None = None
    """The bi-encoder that ranks all candidates before any is read as a pair. If it is present, it is stage 0, and the
    stages of pairs are numbered from 1. It is the only stage if the network of pairs has no layers (`B0 0H0`), exits
    or heads."""
    drop_schedule: tuple[DropRatio, ...] = ()
    """The default drop ratio of every stage but the last, including the first stage. Empty: nothing is dropped."""
    lexical_ratio: LexicalRatio = 0.0
    longer_lists: Annotated[
        tuple[ListSchedule, ...], Field(max_length=MOST_SCHEDULES, exclude_if=lambda schedules: schedules == ())
    ] = ()
    """Default schedules that replace `drop_schedule` and `lexical_ratio` for questions with more candidates, because
    the same ratios lose less among more. Ascending by `candidates`; omitted from `config.json` if empty."""
    drop_minimum: Count = 1
    """The least number of candidates that this checkpoint's own schedules leave alive. An early exit that finds the
    worse half of 200 candidates reliably is wrong too often about the worse half of ten, and dropping from ten saves
    nothing."""
    tuned_schedules: Annotated[tuple[TunedSchedule, ...], Field(max_length=MOST_SCHEDULES)] = ()
    """Schedules for the service to choose from under load, the costliest and most accurate first. Empty before
    `train tune`."""
    languages: Annotated[tuple[LanguageCode, ...], Field(exclude_if=lambda languages: languages == ())] = ()
    """The languages of the texts that the model is for. Empty, and omitted from `config.json`, if none is stated."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Layers and exits.
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
        # What only some kinds of networks have.
        room = self.transformer.max_positions - self.transformer.position_offset
        if self.encoding.max_length > room:
            raise ValueError(f"max_length {self.encoding.max_length} exceeds the encoder's {room} positions")
        if isinstance(self.transformer, OpaqueTransformer):
            self._check_opaque()
        self._check_decoder()
        self._check_schedules()
        if self.first_stage is not None:
            self._check_first_stage(self.first_stage)
        return self

    def _check_schedules(self) -> None:
        """Raise ValueError unless schedules have a ratio for each exit, tuned ones go from the costliest to the
        cheapest, as the service tries them, and those of longer lists from short to long ones.
        """
        exits = self.scored_stages - 1
        for default in (self.drop_schedule, *(longer.schedule for longer in self.longer_lists)):
            if default and len(default) != exits:
                raise ValueError(f"drop_schedule needs {exits} ratios, one per stage but the last")
        counts = [longer.candidates for longer in self.longer_lists]
        if counts != sorted(set(counts)):
            raise ValueError("longer_lists must be listed by distinct numbers of candidates, ascending")
        for tuned in self.tuned_schedules:
            if len(tuned.schedule) != exits:
                raise ValueError(f"every tuned schedule needs {exits} ratios, one per stage but the last")
        if len({name for tuned in self.tuned_schedules for name in tuned.metrics}) > MOST_METRICS:
            raise ValueError(f"the tuned schedules have more than {MOST_METRICS} different metrics")
        costs = [tuned.cost for tuned in self.tuned_schedules]
        if costs != sorted(costs, reverse=True):
            raise ValueError("tuned_schedules must go from the costliest to the cheapest")

    def _check_first_stage(self, first: TextRankerConfig) -> None:
        """Raise ValueError if `first` is a joint text ranker, or reads documents in windows."""
        if first.joint:
            raise ValueError("a joint text ranker reads question and candidate together: it cannot be a first stage")
        if first.encoding.document_length > first.encoding.window:
            raise ValueError("a first stage reads a candidate at once: document_length must not exceed window")

    def _check_decoder(self) -> None:
        """Raise ValueError for a decoder without the fields that it needs, or an encoder with fields of decoders."""
        decodes = isinstance(self.transformer, TransformerConfig) and self.transformer.decoder is not None
        if decodes != (self.encoding.prompt is not None):
            raise ValueError("a decoder needs encoding.prompt, which nothing else reads")
        read = [exit_.pooling for exit_ in self.exits]
        read += [self.architecture.classifier_pooling] if self.architecture.heads else []
        if any((pooling == "last") != decodes for pooling in read):
            raise ValueError("a decoder's exits and classifier read the last token, others do not")
        if decodes and any(exit_.token_features for exit_ in self.exits):
            raise ValueError("a decoder's exits have no token_features: tokens that pairs share are computed once")
        if decodes and (self.encoding.segments != 2 or (self.architecture.heads and self.architecture.head_layers)):
            raise ValueError("a decoder reads pairs of two segments, and its heads have no layers")

    def _check_opaque(self) -> None:
        """Raise ValueError for fields that do not fit an opaque graph."""
        if self.architecture.heads or len(self.exits) != 1:
            raise ValueError("an opaque network has no heads, and one exit after its last layer")
        if self.first_stage is not None:
            raise ValueError("an opaque network takes no first stage: what its layers cost is not known")
        if self.encoding.template is None or self.encoding.segments != 2:
            raise ValueError("an opaque network needs encoding.template, and pairs of two segments")

    @property
    def body(self) -> TransformerConfig:
        """The encoder's shape, for code that needs its layers. Raises OpaqueRankerError for an opaque graph."""
        if isinstance(self.transformer, OpaqueTransformer):
            raise OpaqueRankerError(
                f"{self.name} is an opaque graph ({self.transformer.model_type}), whose layers are not known: it can "
                "be served by the onnx backend and evaluated, and not run by torch, trained, cut or read back"
            )
        return self.transformer

    @property
    def takes_instruction(self) -> bool:
        """True if a request may give an instruction with its question."""
        return self.encoding.prompt is not None and bool(self.encoding.prompt.instruction)

    @property
    def score_form(self) -> str:
        """The meaning of a score of the last stage, in words. Scores of every model lie between 0 and 1."""
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

        A head's last layer computes its queries and feed-forward for the first token only, so the last layers of all
        heads together count as half a layer. If the classifier reads the mean of all tokens, they count in full.
        """
        layers = [float(stage.stop - stage.start) for stage in self.stages]
        heads, depth = self.architecture.heads, self.architecture.head_layers
        if heads and depth:
            layers[-1] += (depth - 1) * heads + (0.5 if self.architecture.classifier_pooling == "first" else heads)
        return tuple(layers)

    @property
    def reads_pairs(self) -> bool:
        """False if the first stage is the only stage."""
        return bool(self.stages)

    @property
    def candidate_encoding(self) -> EncodingConfig | TextEncodingConfig:
        """The lengths at which candidates are cut: a pair's, or a text's if the first stage is the only stage."""
        return self.first_stage.encoding if self.first_stage is not None and not self.reads_pairs else self.encoding

    @property
    def scored_stages(self) -> int:
        """The number of stages as answers, schedules and metrics count them, including the first stage."""
        return len(self.stages) + (self.first_stage is not None)

    @property
    def scored_stage_layers(self) -> tuple[float, ...]:
        """The cost of each scored stage per token, in layers of the body.

        Layers of a first stage are converted by the number of weights in their linear maps. The cost of a first stage
        assumes that no vector is cached.
        """
        if self.first_stage is None:
            return self.stage_layers
        first = self.first_stage.transformer
        if not self.reads_pairs:
            return (float(first.layers),)
        return (first.layers * _linear_weights(first) / _linear_weights(self.body), *self.stage_layers)

    def schedule_for(self, candidates: int) -> DropSchedule:
        """The default schedule of a question with this number of distinct candidates, with a ratio for each exit."""
        chosen = DropSchedule(schedule=self.drop_schedule, lexical_ratio=self.lexical_ratio)
        for longer in self.longer_lists:
            if longer.candidates <= candidates:
                chosen = longer
        return DropSchedule(
            schedule=chosen.schedule or (0.0,) * (self.scored_stages - 1), lexical_ratio=chosen.lexical_ratio
        )

    @property
    def defaults(self) -> tuple[DropSchedule, ...]:
        """The default schedules that drop something, from few candidates to many."""
        schedules = (self.schedule_for(count) for count in (1, *(longer.candidates for longer in self.longer_lists)))
        return tuple(each for each in schedules if any((each.lexical_ratio, *each.schedule)))

    @property
    def drops_lexically(self) -> bool:
        """True if one of the checkpoint's schedules has a lexical ratio."""
        return any(each.lexical_ratio for each in (*self.defaults, *self.tuned_schedules))

    @property
    def schedule(self) -> tuple[float, ...]:
        """The default drop ratios of questions with few candidates, one per scored stage but the last."""
        return self.schedule_for(1).schedule

    def drop_policy(
        self,
        requested: float | Sequence[float] | None = None,
        *,
        lexical: float | None = None,
        default: DropSchedule | None = None,
        candidates: int = 1,
        keep: int = 1,
    ) -> DropPolicy:
        """The drop policy for a question with `candidates` distinct candidates, which leaves at least `keep` of them.

        `requested` are the ratios of the exits (`drop.drop_ratios`), and `lexical` is that of the lexical layer, which
        drops nothing if only `requested` is given. Where both are None, the ratios are those of `default`, or of this
        checkpoint's `schedule_for` the question. Without `requested`, `drop_minimum` candidates stay at least as well.

        Raises ValueError for ratios that do not fit the exits.
        """
        default = default or self.schedule_for(candidates)
        ratios = drop_ratios(requested, default.schedule)
        if lexical is None:
            lexical = default.lexical_ratio if requested is None else 0.0
        return RatioSchedule(ratios, max(keep, self.drop_minimum) if requested is None else keep, lexical)


def _linear_weights(transformer: TransformerConfig) -> float:
    """The number of weights in one layer's linear maps: four of attention and those of the feed-forward."""
    width = transformer.hidden_size
    return float(width * (4 * width + transformer.feed_forward_maps * transformer.intermediate_size))
