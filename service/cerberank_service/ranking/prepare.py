"""Prepares a call for the engine: checks its drop ratios, merges duplicate candidates, encodes the pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.token_cache import TokenCache
from cerberank_service.call import RankCall
from cerberank_service.engine.known_scores import KnownScores
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.slo import loss_of


@dataclass(frozen=True, slots=True)
class Prepared:
    """The engine's input, and how its pairs map to the request's candidates."""

    pairs: EncodedPairs
    pair_of: NDArray[np.int64]
    """Shape [n]: the pair of each candidate; duplicates share one."""
    unique: tuple[Candidate, ...]
    """The candidate of each pair."""
    policy: DropPolicy
    loss: Mapping[str, float]
    """Expected loss of the policy in points of each metric."""
    warnings: tuple[str, ...]
    known: KnownScores | None = None


def prepare(
    call: RankCall,
    checkpoint: Checkpoint,
    encoder: PairEncoder,
    *,
    default: tuple[float, ...] | None = None,
    cache: TokenCache | None = None,
) -> Prepared:
    """Check, deduplicate and encode a call; one without drop ratios gets `default`, or else the checkpoint's schedule.

    Tokens are looked up and kept in `cache`, in the part of the call's tenant.

    Raises ServiceError (422) for invalid drop ratios, and for texts that are too long when the call refuses truncation.
    """
    policy = _policy(call, checkpoint, default)
    first: dict[Candidate, int] = {}
    pair_of = np.asarray([first.setdefault(candidate, len(first)) for candidate in call.candidates], dtype=np.int64)
    pairs = encoder.encode(call.question, list(first), cache, partition=call.tenant)
    cut = int(pairs.truncated[pair_of].sum())
    if cut and call.refuse_truncation:
        limit = checkpoint.config.encoding.max_length
        raise ServiceError(Kind.INVALID, f"{cut} texts exceed {limit} tokens with the question; allow truncation")
    return Prepared(
        pairs=pairs,
        pair_of=pair_of,
        unique=tuple(first),
        policy=policy,
        loss=loss_of(checkpoint.config.tuned_schedules, policy.ratios),
        warnings=tuple(_warnings(call, checkpoint, cut)),
    )


def _policy(call: RankCall, checkpoint: Checkpoint, default: tuple[float, ...] | None) -> DropPolicy:
    try:
        return checkpoint.config.drop_policy(call.drop_ratio, default=default, keep=call.top_k or 1)
    except ValueError as error:
        raise ServiceError(Kind.INVALID, f"drop_ratio: {error}") from error


def _warnings(call: RankCall, checkpoint: Checkpoint, cut: int) -> list[str]:
    warnings = []
    if cut:
        warnings.append(
            f"{cut} candidates were scored on truncated text: a pair holds "
            f"{checkpoint.config.encoding.max_length} tokens"
        )
    if empty := sum(not candidate.text.strip() for candidate in call.candidates):
        warnings.append(f"{empty} candidates are empty")
    context = any(candidate.previous or candidate.next for candidate in call.candidates)
    if context and checkpoint.config.encoding.segments == 2:
        warnings.append("this model does not read the previous and next sentence")
    if call.latency_target_ms is not None and call.drop_ratio is None and not checkpoint.config.tuned_schedules:
        warnings.append("this model has no tuned schedules: latency_target_ms has no effect")
    if call.drop_ratio and len(checkpoint.config.stages) == 1:
        warnings.append("this model has no exits: drop_ratio has no effect")
    return warnings
