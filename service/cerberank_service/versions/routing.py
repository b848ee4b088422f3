"""Routes a call to a version, by the snapshot, the name in the call, and the question.

A call names `model`, `model@label` or `model@version`. A model without label or version means its stable version. While
the canary's engine is alive, a share of these questions goes to the canary instead. The share is chosen by a hash of
the question, so that the same question always gets the same version.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from cerberank_models.checkpoint.store.checkpoint_store import LABELS, Reference
from cerberank_service.errors import Kind, Refusal, ServiceError
from cerberank_service.versions.state import ModelState, Snapshot

PARTS = 1 << 32
LONGEST_NAME = 100
"""Length to which unknown names are cut in error messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutingSettings:
    """The settings that affect routing."""

    aliases: frozenset[str] = frozenset()
    """Alternative names of the default model."""
    canary_percent: float = 0.0


def in_canary(question: str, percent: float) -> bool:
    """True if the question belongs to the canary's share. The questions of a share also belong to every larger share.

    >>> in_canary("how tall?", 0.0), in_canary("how tall?", 100.0)
    (False, True)
    """
    digest = blake2b(question.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") < percent / 100.0 * PARTS


def route(
    snapshot: Snapshot, settings: RoutingSettings, name: str | None, version: str | None, question: str
) -> Reference:
    """The version that answers. Raises ServiceError: 404 with the served names, 503 while there is no stable version.

    `version` is set by dialects with a separate field for the version.
    """
    model, _, rest = (name or "").partition("@")
    if not model or (model in settings.aliases and not snapshot.model(model).any_ready):
        if snapshot.default is None or not snapshot.model(snapshot.default).any_ready:
            text = "the default model is not ready; name another, or see /v1/models"
            raise ServiceError(Kind.UNAVAILABLE, text, retry_after=5, refusal=Refusal("loading"))
        model = snapshot.default
    state = snapshot.model(model)
    if not state.any_ready:
        served = (each for each, other in snapshot.models.items() if other.any_ready)
        names = ", ".join(sorted({*served, *settings.aliases})) or "none"
        raise ServiceError(
            Kind.NOT_FOUND, f"there is no model {_short(name)}; served: {names}; CERBERANK_ALIASES adds names"
        )
    if rest and version and rest != version:
        raise ServiceError(Kind.NOT_FOUND, f"{_short(name)} and version {_short(version)} contradict each other")
    wanted = rest or version
    if wanted is None:
        return Reference(model, _stable_or_canary(model, state, question, settings.canary_percent))
    for label in LABELS:
        if wanted == label and label in state.serving:
            return Reference(model, state.serving[label])
    if not state.is_ready(wanted):
        can_be_asked = ", ".join(sorted({*state.ready, *state.serving}))
        raise ServiceError(Kind.NOT_FOUND, f"{model} has no {_short(wanted)}; served: {can_be_asked}")
    return Reference(model, wanted)


def _stable_or_canary(model: str, state: ModelState, question: str, percent: float) -> str:
    canary = state.labelled("canary")
    if canary is not None and canary.engine.alive and in_canary(question, percent):
        return state.serving["canary"]
    if (stable := state.serving.get("stable")) is None:
        text = f"{model} has no stable version yet; see /v1/models"
        raise ServiceError(Kind.UNAVAILABLE, text, retry_after=10, refusal=Refusal("loading"))
    return stable


def _short(name: str | None) -> str:
    name = name or ""
    return repr(name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "...")
