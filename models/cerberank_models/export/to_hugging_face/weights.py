"""The weights of a ranker with one head, by the names that `importing/families.py` reads them from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from cerberank_models.importing.families import FAMILIES, UnsupportedModelError
from cerberank_models.importing.hugging_face import places
from cerberank_models.network.ranker import Ranker

OUTPUT = "heads.0.classifier.output."


def classifier_of(ranker: Ranker, described: Any) -> Any:
    """The transformers model of the configuration `described`, in evaluation mode, with the weights of a one-headed
    `ranker`. A classifier of two logits becomes one of their difference.

    Raises UnsupportedModelError for weights that the model has no place for, such as those of a head on ALBERT that
    were trained apart from the body's one layer.
    """
    names, state, used = FAMILIES[ranker.config.body.family], _one_logit(ranker.state_dict()), set()
    model = AutoModelForSequenceClassification.from_config(described).eval()
    filled: dict[str, Tensor] = {}
    for key, value in model.state_dict().items():
        if names.unused.search(key):
            filled[key] = value
            continue
        parts = []
        for part, _ in names.parts(key, value):
            where = places(part.removeprefix(names.prefix), names, ranker)
            found = [state[place] for place in where]
            if not found or any(not torch.equal(found[0], other) for other in found):
                raise UnsupportedModelError(
                    f"{ranker.config.name} cannot be a {type(model).__name__}: {key} would have to be all of {where}, "
                    "which differ"
                )
            parts.append(found[0])
            used.update(where)
        filled[key] = torch.cat(parts)
    if surplus := sorted(set(state) - used):
        raise UnsupportedModelError(f"{type(model).__name__} has no place for {', '.join(surplus)}")
    model.load_state_dict(filled, strict=True)
    return model


def _one_logit(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights, of two logits those of `z1 - z0`."""
    return {
        name: value[1:] - value[:1] if name.startswith(OUTPUT) and len(value) == 2 else value
        for name, value in state.items()
    }
