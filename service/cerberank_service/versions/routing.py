"""Which version answers a call: a pure function of the names that are served, the call's name and its question.

A call names `model`, `model@label` or `model@version`. A model alone means its stable version, but for the share of
questions that the canary gets: by a hash of the question, so that the same question always gets the same version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from cerberank_models.checkpoint.store.contract import LABELS, Label, Reference
from cerberank_service.errors import Kind, ServiceError

PARTS = 1 << 32
LONGEST_NAME = 100
"""What an error repeats of a name that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Routed:
    """What of a model can be asked."""

    ready: frozenset[str]
    """Versions."""
    serving: Mapping[Label, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Routes:
    """The names that are served; replaced as a whole, never changed."""

    models: Mapping[str, Routed] = field(default_factory=dict)
    default: str | None = None
    """The model of calls that name none, or an alias."""
    aliases: frozenset[str] = frozenset()
    canary_percent: float = 0.0


def in_canary(question: str, percent: float) -> bool:
    """Whether the question is of the share that the canary gets. A larger share holds every smaller one.

    >>> in_canary("how tall?", 0.0), in_canary("how tall?", 100.0)
    (False, True)
    """
    digest = blake2b(question.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") < percent / 100.0 * PARTS


def route(routes: Routes, name: str | None, version: str | None, question: str) -> Reference:
    """The version that answers. Raises ServiceError: 404 naming what is served, 503 while nothing stable is.

    `version` is what some dialects name beside the model.
    """
    model, _, rest = (name or "").partition("@")
    if not model or (model in routes.aliases and model not in routes.models):
        if routes.default is None:
            raise ServiceError(
                Kind.UNAVAILABLE, "the default model is not ready; name another, or see /v1/models", retry_after=5
            )
        model = routes.default
    if model not in routes.models:
        known = sorted({*routes.models, *routes.aliases})
        raise ServiceError(Kind.NOT_FOUND, f"there is no model {_short(name)}; served: {', '.join(known) or 'none'}")
    routed = routes.models[model]
    if rest and version and rest != version:
        raise ServiceError(Kind.NOT_FOUND, f"{_short(name)} and version {_short(version)} contradict each other")
    wanted = rest or version
    if wanted is None:
        return Reference(model, _stable_or_canary(model, routed, question, routes.canary_percent))
    for label in LABELS:
        if wanted == label and label in routed.serving:
            return Reference(model, routed.serving[label])
    if wanted not in routed.ready:
        served = sorted({*routed.ready, *routed.serving})
        raise ServiceError(Kind.NOT_FOUND, f"{model} has no {_short(wanted)}; served: {', '.join(served)}")
    return Reference(model, wanted)


def _stable_or_canary(model: str, routed: Routed, question: str, percent: float) -> str:
    canary = routed.serving.get("canary")
    if canary is not None and in_canary(question, percent):
        return canary
    if (stable := routed.serving.get("stable")) is None:
        raise ServiceError(Kind.UNAVAILABLE, f"{model} has no stable version yet; see /v1/models", retry_after=10)
    return stable


def _short(name: str | None) -> str:
    name = name or ""
    return repr(name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "...")
