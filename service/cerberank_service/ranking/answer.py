"""Turns the engine's result for the distinct candidates into the answer for all candidates of the request."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cerberank_models.calibration import Calibration, probabilities
from cerberank_models.checkpoint.store.protocol import Reference
from cerberank_models.drop import UNSCORED
from cerberank_service.call import RankAnswer, RankCall, Timing
from cerberank_service.engine.work import Ranked
from cerberank_service.ranking.prepare import Prepared


def answer_of(
    call: RankCall,
    prepared: Prepared,
    ranked: Ranked,
    reference: Reference,
    request_id: str,
    *,
    calibration: Calibration | None = None,
    calibrated_everywhere: bool = False,
    encode_seconds: float,
    total_seconds: float,
) -> RankAnswer:
    """The answer. Identical candidates stand next to each other, in the order of the request.

    `calibrated_everywhere` is the setting CERBERANK_CALIBRATED_SCORES.
    """
    pair_of = prepared.pair_of
    place = np.empty(len(prepared.unique), dtype=np.int64)
    place[ranked.order] = np.arange(len(ranked.order))
    by_place = np.argsort(place[pair_of], kind="stable")
    stages = ranked.stages[pair_of]
    calibrated = None
    if calibration is not None:
        texts = [candidate.text for candidate in prepared.unique]
        calibrated = probabilities(calibration, ranked.scores, ranked.stages, texts)
        calibrated = replace(calibrated, scores=calibrated.scores[pair_of])
    return RankAnswer(
        request_id=request_id,
        model=reference.model,
        version=reference.version,
        drop_schedule=prepared.policy.ratios,
        expected_loss=prepared.loss if (stages < len(prepared.policy.ratios)).any() else {},
        complete=ranked.complete,
        order=by_place[: call.top_k],
        scores=ranked.scores[pair_of],
        calibrated=calibrated,
        calibrated_everywhere=calibrated_everywhere,
        least=prepared.least,
        stages=stages,
        heads=None if ranked.heads is None else ranked.heads[pair_of],
        truncated=prepared.truncated[pair_of],
        question_truncated=prepared.pairs.question_truncated,
        unknown=int(prepared.unknown[pair_of].sum()),
        question_unknown=prepared.pairs.question_unknown,
        spans=None if ranked.spans is None else ranked.spans[pair_of],
        tokens=prepared.tokens,
        timing=Timing(
            encode=1000.0 * encode_seconds,
            queue=1000.0 * ranked.queue_seconds,
            compute=1000.0 * ranked.compute_seconds,
            total=1000.0 * total_seconds,
        ),
        warnings=_warnings(prepared, ranked, unscored=int((stages == UNSCORED).sum())),
    )


def _warnings(prepared: Prepared, ranked: Ranked, *, unscored: int) -> tuple[str, ...]:
    warnings = prepared.warnings
    if not ranked.complete:
        warnings = (*warnings, "the deadline passed: the order is what was known then")
    if unscored:
        told = "1 candidate was" if unscored == 1 else f"{unscored} candidates were"
        warnings = (*warnings, f"{told} not scored in time; what has no score stands last, in the order of the request")
    return warnings
