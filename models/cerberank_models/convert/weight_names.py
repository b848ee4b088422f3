"""The family and the classifier of a model by the names of its weights, where its config.json states neither.

transformers of 2019, with which TANDA's authors trained, wrote no `model_type` and no `architectures`, and training
code often writes the name of a class of its own. Only names and shapes are read here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import transformers
from safetensors import SafetensorError, safe_open
from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

from cerberank_models.convert.families import FAMILIES, UnsupportedModelError
from cerberank_models.convert.loading import POOLER, stored_weights
from cerberank_models.convert.source import CONFIG, Source
from cerberank_models.transformer import Family

SAFE, PICKLED = "model.safetensors", "pytorch_model.bin"
"""The files of a model's weights; the first that exists is read."""
KINDS = ("weight", "bias", "gamma", "beta")
"""The weights of a module; norms of the first models have the last two, which transformers renames."""
NAMED = 5
"""The most names of weights in a message."""


@dataclass(frozen=True, slots=True)
class WeightNames:
    """The shape of each weight of a model, by its name."""

    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, source: Source) -> WeightNames:
        """The names in the model's file of weights; none if it has no such file, or several.

        From the hub the file is downloaded. Raises UnsupportedModelError for a file that holds more than tensors.
        """
        if (file := source.file(SAFE)) is not None:
            try:
                with safe_open(file, framework="pt") as opened:
                    return cls({name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()})  # noqa: SIM118
            except SafetensorError as error:
                raise UnsupportedModelError(f"{source.place}: {SAFE} cannot be read: {error}") from error
        if (file := source.file(PICKLED)) is not None:
            weights = stored_weights(source.place, file, device="meta")
            return cls({name: tuple(value.shape) for name, value in weights.items()})
        return cls({})

    def family(self, source: Source) -> Family | None:
        """The family whose token embeddings are among the weights; None if there is none, or if it stays open which."""
        families = [
            family
            for family, names in FAMILIES.items()
            if f"{names.prefix}{next(iter(names.embeddings))}weight" in self.shapes
        ]
        # XLM-RoBERTa's weights have RoBERTa's names, and its vocabulary has another file.
        if "roberta" in families and source.file("vocab.json") is None:
            return None
        return families[0] if families else None

    def labels(self, family: Family) -> int | None:
        """The number of labels of the classifier of this family; None if a weight of it is missing."""
        inner = {name.removeprefix(FAMILIES[family].prefix): shape for name, shape in self.shapes.items()}
        shapes = [inner.get(f"{module}weight", ()) for module in FAMILIES[family].classifier]
        return shapes[-1][0] if all(shapes) else None  # the last module gives the logits

    def foreign(self, family: Family) -> list[str]:
        """The weights that are in no classifier of this family, and in no head that rankers do not use."""
        mapping = FAMILIES[family]
        modules = {*mapping.embeddings, *mapping.classifier, POOLER, f"{POOLER}dense.", mapping.output_norm}
        modules |= {*mapping.layer_names, *mapping.merged}

        def is_known(name: str) -> bool:
            inner = name.removeprefix(mapping.prefix)
            layer = mapping.layer.match(inner)
            module, _, kind = (inner if layer is None else layer[2]).rpartition(".")
            return (f"{module}." in modules and kind in KINDS) or mapping.unused.search(name) is not None

        return sorted(name for name in self.shapes if not is_known(name))


def complete(source: Source, configuration: Any) -> None:
    """Set the class and the labels of a classifier whose config.json names no class of transformers, by its weights.

    The configuration is left as it is if the weights are not those of a classifier of its family alone.
    """
    if (family := _unnamed(configuration)) is None:
        return
    names = WeightNames.of(source)
    labels = names.labels(family)
    if labels is None or names.foreign(family):
        return
    configuration.architectures = [MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(configuration)].__name__]
    if not {"num_labels", "id2label"} & (source.optional_json(CONFIG) or {}).keys():
        configuration.num_labels = labels


def foreign_weights(source: Source, configuration: Any) -> list[str]:
    """The weights of a model of no known class that are not in a classifier of its family; none for other models."""
    family = _unnamed(configuration)
    return [] if family is None else WeightNames.of(source).foreign(family)


def family_of(source: Source) -> Family:
    """The family of a model whose config.json states no `model_type`. Raises UnsupportedModelError if it stays open."""
    names = WeightNames.of(source)
    if (family := names.family(source)) is not None:
        return family
    seen = f"nor do its weights ({listed(names.shapes)})" if names.shapes else f"and it has no {SAFE} or {PICKLED}"
    raise UnsupportedModelError(
        f'{source.place}: {CONFIG} does not name the family of the model, {seen}: add "model_type": "bert", or what it '
        "is, to that file"
    )


def listed(names: Collection[str]) -> str:
    """The first names, and the number of the others."""
    more = len(names) - NAMED
    return ", ".join(sorted(names)[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _unnamed(configuration: Any) -> Family | None:
    """The family of a model whose configuration names no class of transformers; None for other models."""
    if any(hasattr(transformers, str(name)) for name in configuration.architectures or ()):
        return None
    return next((family for family in FAMILIES if family == configuration.model_type), None)
