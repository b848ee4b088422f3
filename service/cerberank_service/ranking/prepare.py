"""Prepares a call for the engine: checks its drop ratios, merges duplicate candidates, encodes the pairs.

With a first stage, only the pairs of its survivors are encoded, after the first stage has run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cerberank_models.calibration import CalibrationError, threshold_for
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import Candidate, EncodedPairs, PairEncoder
from cerberank_models.frame import InstructionError
from cerberank_models.reading import call_warnings, cut_warnings, unknown_warnings
from cerberank_models.token_cache import TokenCache
from cerberank_service.call import RankCall
from cerberank_service.errors import Kind, ServiceError
from cerberank_service.ranking.slo import loss_of

NO_PAIRS = EncodedPairs(
    token_ids=np.empty(0, np.int32),
    type_ids=np.empty(0, np.int32),
    offsets=np.zeros(1, np.int64),
    truncated=np.empty(0, np.bool_),
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The engine's input, and its mapping to the request's candidates."""

    pairs: EncodedPairs
    """The pair, or its windows, of each distinct candidate; with a first stage, of its survivors (empty before it)."""
    truncated: NDArray[np.bool_]
    """True for each distinct candidate whose text was cut."""
    unknown: NDArray[np.bool_]
    """True for each distinct candidate with mostly unknown tokens."""
    pair_of: NDArray[np.int64]
    """Shape [n]: the index in `unique` of each of the request's candidates."""
    unique: tuple[Candidate, ...]
    """The distinct candidates."""
    policy: DropPolicy
    loss: Mapping[str, float]
    """Expected loss of the policy in points of each metric."""
    warnings: tuple[str, ...]
    least: float | None = None
    """The calibrated score that results must reach for the call's `min_precision`; None if the call has none."""
    text_tokens: int = 0
    """Tokens of the texts whose vectors a first stage had to compute."""

    @property
    def tokens(self) -> int:
        """Tokens of the question's pairs and of the texts whose vectors are computed."""
        return self.pairs.tokens + self.text_tokens


def prepare(
    call: RankCall,
    checkpoint: Checkpoint,
    encoder: PairEncoder,
    *,
    default: tuple[float, ...] | None = None,
    cache: TokenCache | None = None,
) -> Prepared:
    """Check, deduplicate and encode a call.

    A call without drop ratios gets the schedule `default`, or the checkpoint's if that is None. Tokens are cached in
    `cache`, separately for each tenant.

    Raises ServiceError (422) for invalid drop ratios, for a precision that the checkpoint cannot guarantee, for an
    instruction that it does not read, and for texts that are too long when the call refuses truncation.
    """
    return read_pairs(call, fold(call, checkpoint, default), checkpoint, encoder, cache=cache)


def fold(call: RankCall, checkpoint: Checkpoint, default: tuple[float, ...] | None = None) -> Prepared:
    """Check and deduplicate a call without encoding pairs.

    Raises ServiceError (422) for invalid drop ratios, for a precision that the checkpoint cannot guarantee, and for an
    instruction that it does not read.
    """
    if call.instruction and not checkpoint.config.takes_instruction and not call.ignore_instruction:
        raise ServiceError(Kind.INVALID, f"instruction: {checkpoint.config.name} has no prompt that could hold it")
    policy = _policy(call, checkpoint, default)
    first: dict[Candidate, int] = {}
    pair_of = np.asarray([first.setdefault(candidate, len(first)) for candidate in call.candidates], dtype=np.int64)
    return Prepared(
        pairs=NO_PAIRS,
        truncated=np.zeros(len(first), np.bool_),
        unknown=np.zeros(len(first), np.bool_),
        pair_of=pair_of,
        unique=tuple(first),
        policy=policy,
        loss=loss_of(checkpoint.config.tuned_schedules, policy.ratios),
        least=_least(call, checkpoint),
        warnings=tuple(_warnings(call, checkpoint)),
    )


def read_pairs(
    call: RankCall,
    folded: Prepared,
    checkpoint: Checkpoint,
    encoder: PairEncoder,
    *,
    rows: NDArray[np.int64] | None = None,
    cache: TokenCache | None = None,
) -> Prepared:
    """Encode the distinct candidates `rows` of a folded call as pairs; None encodes all of them.

    Raises ServiceError (422) for texts that are too long when the call refuses truncation, and for an instruction so
    long that no room is left for the texts.
    """
    candidates = folded.unique if rows is None else [folded.unique[row] for row in rows.tolist()]
    try:
        pairs = encoder.encode(
            call.question,
            candidates,
            cache,
            partition=call.tenant,
            windowing=call.windowing,
            most_tokens=call.most_tokens,
            instruction=call.instruction if checkpoint.config.takes_instruction else None,
        )
    except InstructionError as error:
        raise ServiceError(Kind.INVALID, f"instruction: {error}") from error
    truncated, unknown = pairs.truncated_candidates, pairs.unknown_candidates
    if rows is not None:
        truncated, unknown = folded.truncated.copy(), folded.unknown.copy()
        truncated[rows], unknown[rows] = pairs.truncated_candidates, pairs.unknown_candidates
    cut, strange = int(truncated[folded.pair_of].sum()), int(unknown[folded.pair_of].sum())
    warnings = cut_warnings(
        question=pairs.question_truncated,
        candidates=cut,
        encoding=checkpoint.config.encoding,
        windowing=call.windowing,
        most_tokens=call.most_tokens,
    )
    if call.refuse_truncation and warnings:
        raise refused_truncation(warnings, pairs.tokens)
    warnings += unknown_warnings(question=pairs.question_unknown, candidates=strange)
    return replace(folded, pairs=pairs, truncated=truncated, unknown=unknown, warnings=(*warnings, *folded.warnings))


def refused_truncation(warnings: Sequence[str], tokens: int) -> ServiceError:
    """The error of a call that refuses truncation; `warnings` say which of its texts, of `tokens`, would be cut."""
    text = f"{'; '.join(warnings)}; send shorter texts or allow truncation"
    return ServiceError(Kind.INVALID, text, tokens=tokens)


def _policy(call: RankCall, checkpoint: Checkpoint, default: tuple[float, ...] | None) -> DropPolicy:
    try:
        return checkpoint.config.drop_policy(call.drop_ratio, default=default, keep=call.top_k or 1)
    except ValueError as error:
        raise ServiceError(Kind.INVALID, f"drop_ratio: {error}") from error


def _least(call: RankCall, checkpoint: Checkpoint) -> float | None:
    try:
        return None if call.min_precision is None else threshold_for(checkpoint.calibration, call.min_precision)
    except CalibrationError as error:
        raise ServiceError(Kind.INVALID, str(error)) from error


def _warnings(call: RankCall, checkpoint: Checkpoint) -> list[str]:
    warnings = call_warnings(call.question, call.candidates, checkpoint.config, call.drop_ratio)
    if call.instruction and not checkpoint.config.takes_instruction:
        warnings.append("this model has no prompt: instruction has no effect")
    if call.latency_target_ms is not None and call.drop_ratio is None and not checkpoint.config.tuned_schedules:
        warnings.append("this model has no tuned schedules: latency_target_ms has no effect")
    return warnings
