"""The table of the body type of each family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cerberank_models.network.bodies.body import BodyType
from cerberank_models.network.bodies.causal import CausalBody
from cerberank_models.network.bodies.post_norm import PostNormBody
from cerberank_models.network.bodies.pre_norm import PreNormBody
from cerberank_models.transformer import Family

BODIES: Mapping[Family, BodyType] = MappingProxyType(
    {
        "albert": PostNormBody,
        "bert": PostNormBody,
        "distilbert": PostNormBody,
        "electra": PostNormBody,
        "modernbert": PreNormBody,
        "qwen2": CausalBody,
        "qwen3": CausalBody,
        "roberta": PostNormBody,
        "xlm-roberta": PostNormBody,
    }
)
