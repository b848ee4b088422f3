"""Reads modular cross-encoders of sentence-transformers: an encoder and a head, whose modules `modules.json` lists.

From the modules' configurations and weights it builds the head for a ranker's configuration, and the whole model as a
network that scores pairs. Only known modules are supported; code is never imported by a name in a file.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cerberank_models.checkpoint.manifest import is_path_within
from cerberank_models.config import Activation, ArchitectureConfig, DenseModule, HeadModule, NormModule, Pooling
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.convert.source import Source
from cerberank_models.network.heads import ModularClassifier

MODULES, TRANSFORMER, SENTENCE_TRANSFORMERS = (
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
)
"""The files of sentence-transformers: the list of modules, the settings of the first module, and the model's kind."""
CLASSIFIER = "classifier."
"""The prefix of the names of a head's weights, in a `ModularNetwork` and in a ranker's head."""
EMBEDDING, SCORES = "sentence_embedding", "scores"
"""The names in sentence-transformers of the pooled vector and of the output of a cross-encoder's last module."""
POOLINGS: Mapping[str, Pooling] = MappingProxyType({"cls": "first", "mean": "mean"})
ACTIVATIONS: Mapping[str, Activation] = MappingProxyType(
    {
        "torch.nn.modules.linear.Identity": "none",
        "torch.nn.modules.activation.GELU": "gelu",
        "torch.nn.modules.activation.ReLU": "relu",
        "torch.nn.modules.activation.Sigmoid": "sigmoid",
        "torch.nn.modules.activation.SiLU": "silu",
        "torch.nn.modules.activation.Tanh": "tanh",
    }
)
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModularHead:
    """The modules after the encoder of a modular cross-encoder."""

    pooling: Pooling
    modules: tuple[HeadModule, ...]
    weights: Mapping[str, Tensor]
    """The weights by their names in a `ModularClassifier`."""

    @property
    def labels(self) -> int:
        """The number of logits, one or two."""
        return cast(DenseModule, self.modules[-1]).width

    def architecture(self, encoder: ArchitectureConfig) -> ArchitectureConfig:
        """The architecture `encoder` with this head's classifier instead of the family's."""
        classifier = {
            "classifier_pooling": self.pooling,
            "classifier_modules": self.modules,
            "classifier_logits": self.labels,
        }
        return ArchitectureConfig.model_validate({**dict(encoder), **classifier})


class Logits(NamedTuple):
    """The output of a sequence classifier."""

    logits: Tensor


class ModularNetwork(nn.Module):
    """A modular cross-encoder with the interface of a sequence classifier of transformers.

    Its weights have the same names as in such a classifier: those of the encoder have the prefix that its class states,
    and those of the head the prefix `classifier.`.
    """

    def __init__(self, encoder: Any, head: ModularHead) -> None:
        """Use `encoder`, a base model of transformers, without its pooler, which no module reads.

        Raises UnsupportedModelError for weights that do not fit the head's modules.
        """
        super().__init__()
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None
        self._place = encoder.base_model_prefix
        self._pooling = head.pooling
        self._types = "token_type_ids" in inspect.signature(encoder.forward).parameters
        self.add_module(self._place, encoder)
        self.config = copy.deepcopy(encoder.config)
        self.config.num_labels = head.labels
        layers = ArchitectureConfig(body_layers=0, heads=1, head_layers=0, classifier_logits=cast(Any, head.labels))
        self.classifier = ModularClassifier(encoder.config.hidden_size, head.architecture(layers), dropout=0.0)
        try:
            self.classifier.load_state_dict(dict(head.weights), strict=True)
        except RuntimeError as error:
            raise UnsupportedModelError(f"the weights of the head's modules do not fit: {error}") from error

    @property
    def base_model(self) -> Any:
        """The encoder."""
        return self.get_submodule(self._place)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Logits:
        """Compute logits `[N, 1]` or `[N, 2]` from ids and mask `[N, S]`. Encoders without token types ignore types."""
        types = {"token_type_ids": token_type_ids} if self._types and token_type_ids is not None else {}
        hidden = self.base_model(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
        if self._pooling == "mean":
            weight = attention_mask[:, :, None].to(hidden.dtype)
            pooled = (hidden * weight).sum(dim=1) / weight.sum(dim=1)
        else:
            pooled = hidden[:, 0]
        return Logits(self.classifier.logits(pooled))


def model_kind(source: Source) -> str | None:
    """The class of sentence-transformers that the model belongs to; None if it states none. Raises SourceError."""
    kind = (source.optional_json(SENTENCE_TRANSFORMERS) or {}).get("model_type")
    if kind is None and any(name == "Pooling" for name, _ in listed_modules(source)):
        return "SentenceTransformer"  # the format of versions before 5.0
    return None if kind is None else str(kind)


def read_modular_head(source: Source) -> ModularHead | None:
    """The head of a modular cross-encoder; None for a model of another kind, or without modules after the encoder.

    A head must begin with `Pooling` by the first token or the mean. `Dense`, `LayerNorm`, `Normalize` and `Dropout` may
    follow, and the last module must be a `Dense` with one or two outputs. Raises UnsupportedModelError with the name of
    the module for any other head.
    """
    listed = listed_modules(source)
    if len(listed) < 2 or model_kind(source) != "CrossEncoder":
        return None
    if listed[0][0] != "Transformer":
        raise _unsupported(source, f"{listed[0][0]} in the place of the Transformer")
    _check_transformer(source, listed[0][1])
    (first, place), *rest = listed[1:]
    if first != "Pooling":
        raise _unsupported(source, f"{first} behind the Transformer, where Pooling is expected")
    pooling = _pooling(source, place)
    modules: list[HeadModule] = []
    weights: dict[str, Tensor] = {}
    result = EMBEDDING
    for kind, place in rest:
        if kind == "Dropout":  # has no effect at inference
            continue
        configuration = _module_configuration(source, place)
        reads = configuration.get("module_input_name") or EMBEDDING
        gives = configuration.get("module_output_name") or reads
        if result == SCORES or reads != EMBEDDING:
            raise _unsupported(source, f"{kind} in {place}, which reads {reads} where there is {result}")
        result = gives
        step = f"steps.{len(modules)}."
        if kind == "Dense":
            modules.append(_dense(source, place, configuration))
            step = "output." if gives == SCORES else f"{step}linear."
            weights |= _weights(source, place, "linear.", step)
        elif kind == "LayerNorm":
            modules.append(NormModule(kind="layer_norm"))
            weights |= _weights(source, place, "norm.", step)
        elif kind == "Normalize":
            modules.append(NormModule(kind="unit_length"))
        else:
            raise _unsupported(source, f"{kind} in {place}")
    last = modules[-1] if modules else None
    if result != SCORES or not isinstance(last, DenseModule) or last.width not in (1, 2):
        raise _unsupported(source, "no Dense of one or two outputs at the end that gives the scores")
    return ModularHead(pooling=pooling, modules=tuple(modules), weights=weights)


def module_settings(source: Source, kind: str) -> dict[str, Any] | None:
    """The configuration of a model's first module of the class `kind`; None without one. Raises SourceError."""
    places = [place for name, place in listed_modules(source) if name == kind]
    return _module_configuration(source, places[0]) if places else None


def listed_modules(source: Source) -> list[tuple[str, str]]:
    """The class and the folder of each module."""
    listed = source.optional_json(MODULES) or []
    try:
        modules = [(str(each["type"]).rpartition(".")[2], str(each.get("path") or "")) for each in listed]
    except (TypeError, KeyError, AttributeError) as error:
        raise UnsupportedModelError(f"{source.place}: {MODULES} is not a list of modules with their types") from error
    for kind, place in modules:
        if place and not is_path_within(place):
            raise UnsupportedModelError(f"{source.place}: {MODULES} has {kind} in {place!r}, outside of the model")
    return modules


def _check_transformer(source: Source, place: str) -> None:
    """Raise UnsupportedModelError if the encoder is in another folder, or changes texts before it tokenises them."""
    if place:
        raise _unsupported(source, f"the Transformer in the folder {place}")
    settings = source.optional_json(TRANSFORMER) or {}
    if settings.get("do_lower_case"):
        raise _unsupported(source, f"do_lower_case in {TRANSFORMER}")
    if settings.get("processing_kwargs"):
        raise _unsupported(source, f"processing_kwargs in {TRANSFORMER}")
    if (task := settings.get("transformer_task", "feature-extraction")) != "feature-extraction":
        raise _unsupported(source, f"the task {task} in {TRANSFORMER}")


def _pooling(source: Source, place: str) -> Pooling:
    configuration = _module_configuration(source, place)
    mode = configuration.get("pooling_mode")
    if mode is None:  # the format of sentence-transformers before 5.4
        named = {"cls_token": "cls", "mean_tokens": "mean"}
        on = [key.removeprefix("pooling_mode_") for key, value in configuration.items() if value is True]
        mode = "+".join(named.get(each, each) for each in on if each != "include_prompt")
    if not isinstance(mode, str) or mode not in POOLINGS:
        raise _unsupported(source, f"Pooling by {mode}, not by one of {' and '.join(POOLINGS)}")
    return POOLINGS[mode]


def _dense(source: Source, place: str, configuration: Mapping[str, Any]) -> DenseModule:
    name = configuration.get("activation_function", "torch.nn.modules.activation.Tanh")
    if name not in ACTIVATIONS:
        raise _unsupported(source, f"Dense in {place} with the activation {name}")
    if configuration.get("use_residual"):
        raise _unsupported(source, f"Dense in {place} with a residual")
    try:
        return DenseModule(
            width=configuration.get("out_features"), bias=configuration.get("bias", True), activation=ACTIVATIONS[name]
        )
    except ValidationError as error:
        raise _unsupported(source, f"Dense in {place}, whose configuration is wrong") from error


def _module_configuration(source: Source, place: str) -> dict[str, Any]:
    configuration = source.optional_json(f"{place}/config.json")
    return configuration if isinstance(configuration, dict) else {}


def _weights(source: Source, place: str, old: str, new: str) -> dict[str, Tensor]:
    """The weights in a module's folder, with the prefix `old` of their names replaced by `new`."""
    file = source.file(f"{place}/{WEIGHTS}")
    if file is None:
        raise UnsupportedModelError(f"{source.place} has no {place}/{WEIGHTS}: a part of its head is missing")
    try:
        stored = load_file(file)
    except (SafetensorError, OSError) as error:
        raise UnsupportedModelError(f"{file} cannot be read: {error}") from error
    return {new + name.removeprefix(old): value.to(torch.float32) for name, value in stored.items()}


def _unsupported(source: Source, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{source.place} is a cross-encoder of sentence-transformers' modules with {what}, which is not supported"
    )
