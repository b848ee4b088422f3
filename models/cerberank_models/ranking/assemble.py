"""Assembles the answer to a call from the rankings of its distinct candidates, and its values as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cerberank_models.calibration import Probabilities, copies_of_first, limited_log_odds, probabilities
from cerberank_models.config import TunedSchedule
from cerberank_models.drop import UNSCORED, order
from cerberank_models.rank_pairs import Ranking
from cerberank_models.ranking.answer_warnings import call_warnings, outcome_warnings, unknown_warnings
from cerberank_models.ranking.call import RankAnswer
from cerberank_models.ranking.prepare import Prepared
from cerberank_models.request import RankRequest, is_blank
from cerberank_models.windows import NO_SPAN

NO_RANKING = Ranking(
    order=np.empty(0, np.int64), scores=np.empty(0, np.float64), stages=np.empty(0, np.int64), heads=None
)


def whole_ranking(prepared: Prepared, ranked: Ranking | None) -> Ranking:
    """The ranking of all distinct candidates, with a first stage as stage 0, and UNSCORED as that of the candidates
    that the lexical layer dropped.

    `ranked` is the ranking of the pairs, or None if there were none. With a first stage, the scores of pairs are used
    only if all pairs have one: after a deadline the pairs with a score are the longest, not the best.
    """
    if not prepared.candidates:
        return NO_RANKING
    if prepared.first_scores is None and prepared.lexical_scores is None:
        assert ranked is not None, "without a first stage there are pairs"
        return ranked
    # The scores of the first stage, or none, which those of the pairs replace.
    count, first = len(prepared.candidates), prepared.first_scores is not None
    scores = np.full(count, np.nan) if prepared.first_scores is None else prepared.first_scores.copy()
    stages = np.where(np.isnan(scores), UNSCORED, 0)
    survivors, heads, spans = prepared.survivors, None, None
    if ranked is not None and not (first and (ranked.stages == UNSCORED).any()):
        scores[survivors] = ranked.scores
        stages[survivors] = ranked.stages + first
        if ranked.heads is not None:
            heads = np.full((count, ranked.heads.shape[1]), np.nan)
            heads[survivors] = ranked.heads
        if ranked.spans is not None:
            spans = np.full((count, 2), NO_SPAN, dtype=np.int64)
            spans[survivors] = ranked.spans
    # What the lexical layer dropped stands below what it kept, in the order of its scores.
    levels, within = stages, np.nan_to_num(scores)
    if (lexical := prepared.lexical_scores) is not None:
        dropped = ~np.isnan(lexical)
        levels, within = stages - dropped, np.where(dropped, lexical, within)
    return Ranking(
        order=order(levels, within),
        scores=scores,
        stages=stages,
        heads=heads,
        spans=spans,
        complete=prepared.complete and (ranked is None or ranked.complete),
    )


def answer_of(prepared: Prepared, ranking: Ranking) -> RankAnswer:
    """The answer for all candidates of the call, from the ranking of the distinct ones.

    Identical candidates stand next to each other, in the order of the call. Blank ones stand last with the score 0.
    """
    places, checkpoint = prepared.places, prepared.model.checkpoint
    blank = np.array([is_blank(candidate.text) for candidate in prepared.candidates], dtype=np.bool_)
    scores = np.where(blank, 0.0, ranking.scores)
    # The order of the distinct candidates becomes that of all candidates.
    rank_of = np.empty(len(prepared.candidates), dtype=np.int64)
    rank_of[ranking.order[np.argsort(blank[ranking.order], kind="stable")]] = np.arange(len(ranking.order))
    by_rank = np.argsort(rank_of[places], kind="stable")
    stages = ranking.stages[places]
    # Scores become probabilities once for each distinct text, because copies are no rivals.
    calibrated = None
    if checkpoint.calibration is not None:
        raw, reached = np.where(blank, np.nan, scores), np.where(blank, UNSCORED, ranking.stages)
        texts = [candidate.text for candidate in prepared.candidates]
        copies = copies_of_first(limited_log_odds(raw), reached, texts)
        calibrated = probabilities(checkpoint.calibration.stages, raw, reached, copies)
        calibrated = Probabilities(
            scores=np.where(blank, 0.0, calibrated.scores)[places],
            answerable=0.0 if blank.all() else calibrated.answerable,
        )
    # What the reader of the answer should know about texts, options and the outcome.
    ratios = prepared.policy.ratios
    lexical = None if prepared.lexical_scores is None else prepared.lexical_scores[places]
    loss = loss_of(checkpoint.config.tuned_schedules, ratios, prepared.policy.lexical)
    dropped = 0 if lexical is None else int((~np.isnan(lexical)).sum())
    unknown = int(prepared.unknown[places].sum())
    question_unknown = prepared.pairs.question_unknown
    warnings = [
        *prepared.cut_warnings(),
        *unknown_warnings(question=question_unknown, candidates=unknown),
        *call_warnings(prepared.call, checkpoint),
        *outcome_warnings(complete=ranking.complete, unscored=int((stages == UNSCORED).sum()) - dropped),
    ]
    return RankAnswer(
        model=checkpoint.config.name,
        version=checkpoint.manifest.version,
        drop_schedule=ratios,
        lexical_ratio=prepared.policy.lexical,
        lexical_scores=lexical,
        expected_loss=loss if (stages < len(ratios)).any() else {},
        complete=ranking.complete,
        order=by_rank[: prepared.call.top_k],
        scores=scores[places],
        calibrated=calibrated,
        threshold=prepared.threshold,
        stages=stages,
        heads=None if ranking.heads is None else ranking.heads[places],
        truncated=prepared.truncated[places],
        question_truncated=prepared.question_truncated,
        unknown=unknown,
        question_unknown=question_unknown,
        spans=None if ranking.spans is None else ranking.spans[places],
        tokens=prepared.tokens,
        warnings=tuple(warnings),
    )


def loss_of(tuned: Sequence[TunedSchedule], ratios: tuple[float, ...], lexical: float = 0.0) -> dict[str, float]:
    """Points of each metric that a schedule loses against the most accurate tuned one; empty if it was not tuned."""
    metrics_of = {(entry.schedule, entry.lexical_ratio): entry.metrics for entry in tuned}
    if (ratios, lexical) not in metrics_of:
        return {}
    best = max(tuned, key=lambda entry: entry.cost).metrics
    reached = metrics_of[ratios, lexical]
    names = [name for name in best if name in reached and not name.endswith(("_loss", "_loss_error"))]
    return {name: round(best[name] - reached[name], 3) for name in names}  # as `tune` rounds them


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseOptions:
    """A request's options for its answer; `texts` is None unless texts are to be returned."""

    ids: tuple[str | int | None, ...]
    metadata: tuple[Mapping[str, Any] | None, ...]
    texts: tuple[str, ...] | None
    heads: bool
    min_score: float | None

    @classmethod
    def of(cls, request: RankRequest) -> ResponseOptions:
        """The options of a request in the form of `POST /v1/rank`."""
        texts = (item if isinstance(item, str) else item.text for item in request.candidates)
        return cls(
            ids=request.ids,
            metadata=request.metadata,
            texts=tuple(texts) if request.return_text else None,
            heads=request.return_heads,
            min_score=request.min_score,
        )


def response_of(answer: RankAnswer, options: ResponseOptions) -> dict[str, Any]:
    """The answer as JSON-ready values in the shape of `/v1/rank`."""
    return {
        "id": answer.request_id,
        "model": answer.model,
        "version": answer.version,
        "drop_schedule": list(answer.drop_schedule),
        "lexical_ratio": answer.lexical_ratio,
        "expected_loss": dict(answer.expected_loss),
        "complete": answer.complete,
        "answerable": None if answer.calibrated is None else answer.calibrated.answerable,
        "results": [_result(answer, options, index) for index in _shown(answer, options.min_score)],
        "usage": {"candidates": len(answer.scores), "tokens": answer.tokens},
        "timing_ms": {
            "encode": round(answer.timing.encode, 3),
            "queue": round(answer.timing.queue, 3),
            "compute": round(answer.timing.compute, 3),
            "total": round(answer.timing.total, 3),
        },
        "warnings": list(answer.warnings),
    }


def _shown(answer: RankAnswer, min_score: float | None) -> list[int]:
    """The entries of `order` whose reported score reaches both `min_score` and the score for `min_precision`.

    The precision is defined for first results: if the first one's score is too low, the list is empty.
    """
    shown: list[int] = answer.order.tolist()
    bounds = [bound for bound in (min_score, answer.threshold) if bound is not None]
    if not shown or (answer.threshold is not None and not answer.reported[shown[0]] >= answer.threshold):
        return []
    return [index for index in shown if float(answer.reported[index]) >= max(bounds)] if bounds else shown


def _result(answer: RankAnswer, options: ResponseOptions, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "index": index,
        "score": None if np.isnan(answer.scores[index]) else float(answer.reported[index]),
        "stage": int(answer.stages[index]),
        "truncated": bool(answer.truncated[index]),
    }
    if answer.lexical_scores is not None and not np.isnan(answer.lexical_scores[index]):
        result["lexical_score"] = float(answer.lexical_scores[index])
    if answer.calibrated is not None and result["score"] is not None:
        result["raw_score"] = float(answer.scores[index])
    if (window := answer.window(index)) is not None:
        result["window"] = dict(zip(("start", "end"), window, strict=True))
    if (name := options.ids[index]) is not None:
        result["id"] = name
    if (metadata := options.metadata[index]) is not None:
        result["metadata"] = metadata
    if options.heads and answer.heads is not None and not np.isnan(answer.heads[index, 0]):
        result["heads"] = answer.heads[index].tolist()
    if options.texts is not None:
        result["text"] = options.texts[index]
    return result
