"""Reads a call for a model: merges identical candidates, and makes the pairs and texts that a device computes.

1. `prepare` checks the call, merges identical candidates, and encodes their pairs. With a first stage it encodes the
   texts whose vectors are not known instead.
2. `after_lexical` drops the share of the lexical layer, if the policy has one.
3. With a first stage, `score_texts` scores what is left, drops by the first ratio, and encodes the survivors' pairs.
4. `whole_ranking` in `assemble.py` merges the ranking of the pairs with that of the first stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import Scores, Vector
from cerberank_models.calibration import threshold_for
from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import DropSchedule
from cerberank_models.drop import DropPolicy
from cerberank_models.encoding import NO_PAIRS, Candidate, EncodedPairs, PairEncoder
from cerberank_models.first_stage.question_texts import NO_CACHES, Caches, FirstStage, QuestionTexts
from cerberank_models.frame import InstructionError
from cerberank_models.lexical import lexical_scores
from cerberank_models.ranking.answer_warnings import cut_warnings
from cerberank_models.ranking.call import CallError, RankCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """An open checkpoint, as far as it reads questions. Threads may share it."""

    checkpoint: Checkpoint
    encoder: PairEncoder
    first_stage: FirstStage | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A call that was read for a model, with what is computed next."""

    call: RankCall
    model: Model
    caches: Caches
    candidates: tuple[Candidate, ...]
    """The distinct candidates."""
    places: NDArray[np.int64]
    """Shape [n]: the place in `candidates` of each of the call's candidates."""
    policy: DropPolicy
    threshold: float | None = None
    """The calibrated score that results must reach for the call's `min_precision`; None if the call has none."""
    pairs: EncodedPairs = NO_PAIRS
    """The pair, or its windows, of each distinct candidate; with a first stage, of each survivor (none before it)."""
    texts: QuestionTexts | None = None
    """The texts that a first stage reads; None without one. Once they are scored, it holds no vectors any more."""
    lexical_scores: Scores | None = None
    """The lexical scores of the distinct candidates that the lexical layer dropped, NaN for all others; None if it
    dropped none."""
    entered: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The distinct candidates that enter the first scored stage, ascending: all that the lexical layer kept."""
    first_scores: Scores | None = None
    """The first stage's scores of the distinct candidates, NaN for those that it did not score, because they had been
    dropped or before the deadline; None without a first stage and before it has run."""
    survivors: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The distinct candidates that have a pair, ascending: without a first stage all that have `entered`."""
    complete: bool = True
    """False if the deadline passed in the first stage."""

    @property
    def tokens(self) -> int:
        """Tokens of the question's pairs and of the texts whose vectors are computed."""
        return self.pairs.tokens + (0 if self.texts is None else self.texts.tokens)

    @property
    def stages_policy(self) -> DropPolicy:
        """The drop policy of the scored stages, for the candidates that have `entered`."""
        return self.policy.without_lexical()

    @property
    def pairs_policy(self) -> DropPolicy:
        """The drop policy of the stages of pairs."""
        return self.stages_policy if self.texts is None else self.stages_policy.after_first()

    @property
    def ranks_texts_alone(self) -> bool:
        """True if the first stage is the model's only stage."""
        return not self.model.checkpoint.config.reads_pairs

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """True for each distinct candidate whose end is not read in its pair, or as a text if there are no pairs."""
        if self.texts is not None and self.ranks_texts_alone:
            return self._by_candidate(self.texts.truncated, self.entered)
        return self._by_candidate(self.pairs.truncated_candidates, self.survivors)

    @property
    def question_truncated(self) -> bool:
        """True if a part of the question is not read."""
        if self.texts is not None and self.ranks_texts_alone:
            return self.texts.question_truncated
        return self.pairs.question_truncated

    @property
    def unknown(self) -> NDArray[np.bool_]:
        """True for each distinct candidate with mostly unknown tokens in its pair."""
        return self._by_candidate(self.pairs.unknown_candidates, self.survivors)

    def _by_candidate(self, flags: NDArray[np.bool_], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """The flags of the distinct candidates `rows` as flags of all distinct candidates, False for all others."""
        of_all = np.zeros(len(self.candidates), np.bool_)
        of_all[rows] = flags
        return of_all

    def cut_warnings(self) -> list[str]:
        """The warnings on texts whose ends are not read."""
        by_pairs = not self.ranks_texts_alone
        return cut_warnings(
            question=self.question_truncated,
            candidates=int(self.truncated[self.places].sum()),
            encoding=self.model.checkpoint.config.candidate_encoding,
            windowing=self.call.windowing if by_pairs else None,
            most_tokens=self.call.most_tokens if by_pairs else None,
        )


def prepare(
    call: RankCall, model: Model, *, schedule: DropSchedule | None = None, caches: Caches = NO_CACHES
) -> Prepared:
    """Check a call, merge identical candidates, and encode their pairs, or the texts for a first stage.

    A call without drop ratios gets those of `schedule`, or if that is None the checkpoint's for its number of distinct
    candidates. One without candidates gets no pairs and no texts.

    Raises CallError for drop ratios that do not fit the exits, for an instruction that the model does not read or that
    leaves no room for texts, and for texts that are too long when the call refuses truncation; CalibrationError for a
    precision that the checkpoint cannot guarantee.
    """
    config = model.checkpoint.config
    call = replace(call, windowing=call.windowing and call.windowing.of_model(config.encoding.windows))
    if call.instruction and not config.takes_instruction and not call.ignore_instruction:
        other = "leave it out, or ask a model with a prompt (`instruction` in /v1/models)"
        raise CallError(f"instruction: {config.name} has no prompt that could hold it; {other}")
    threshold = None
    if call.min_precision is not None:
        threshold = threshold_for(model.checkpoint.calibration, call.min_precision)
    # Identical candidates become one, in the order in which they first appear.
    place_of: dict[Candidate, int] = {}
    places = np.asarray([place_of.setdefault(candidate, len(place_of)) for candidate in call.candidates], np.int64)
    try:
        policy = config.drop_policy(
            call.drop_ratio,
            lexical=call.lexical_ratio,
            default=schedule,
            candidates=len(place_of),
            keep=call.top_k or 1,
        )
    except ValueError as error:
        raise CallError(f"drop_ratio: {error}") from error
    prepared = Prepared(
        call=call,
        model=model,
        caches=caches,
        candidates=tuple(place_of),
        places=places,
        policy=policy,
        threshold=threshold,
        entered=np.arange(len(place_of)),
    )
    if not place_of:
        return prepared
    if model.first_stage is None:
        return _with_pairs(prepared, prepared.entered)
    texts = [candidate.text for candidate in prepared.candidates]
    if call.refuse_truncation:
        # All candidates are tokenised first, so that a text which is too long is refused even if it would be dropped,
        # and without the known vectors, because a text that has one is not tokenised.
        if config.reads_pairs:
            _with_pairs(prepared, prepared.entered)
        else:
            tokenised = replace(model.first_stage, stored=None).read(
                call.question, texts, replace(caches, vectors=None)
            )
            _refuse_truncation(replace(prepared, texts=tokenised))
    return replace(prepared, texts=model.first_stage.read(call.question, texts, caches))


def after_lexical(prepared: Prepared) -> Prepared:
    """Drop the share of the lexical layer, before any stage has scored a candidate.

    With a first stage, all candidates are tokenised for this, also those whose vectors are known. Raises CallError as
    `prepare` does.
    """
    count, encoder = len(prepared.candidates), prepared.model.encoder
    if prepared.policy.expected_alive(count)[0] == count:
        return prepared
    pairs = prepared.pairs if prepared.texts is None else _pairs_of(prepared, prepared.candidates)
    scores = lexical_scores(encoder, pairs)
    entered = prepared.policy.lexical_survivors(scores)
    if len(entered) == count:
        return prepared
    scores[entered] = np.nan
    kept = replace(prepared, lexical_scores=scores, entered=entered)
    if prepared.texts is None:
        return replace(kept, pairs=pairs.of_candidates(entered), survivors=entered)
    return replace(kept, texts=prepared.texts.select(entered))


def score_texts(prepared: Prepared, computed: Sequence[Vector | None], *, complete: bool = True) -> Prepared:
    """Score what entered by the first stage, drop, and encode the survivors as pairs if the model reads pairs.

    `computed` has the vectors of the prepared texts (`FirstStage.scores`). After a deadline, `complete` is False, and
    no pairs are encoded. Raises NonFiniteScoreError for a score that is not a number, and CallError as `prepare` does.
    """
    first_stage, texts = prepared.model.first_stage, prepared.texts
    assert first_stage is not None
    assert texts is not None, "the model has a first stage"
    scores, entered = first_stage.scores(texts, computed, prepared.caches), prepared.entered
    first_scores = np.full(len(prepared.candidates), np.nan)
    first_scores[entered] = scores
    scored = replace(prepared, texts=texts.released(), first_scores=first_scores, complete=complete)
    if not complete or scored.ranks_texts_alone:
        return scored
    return _with_pairs(scored, entered[prepared.stages_policy.survivors(0, scores)])


def _with_pairs(prepared: Prepared, survivors: NDArray[np.int64]) -> Prepared:
    """The call with the pairs of the distinct candidates `survivors`. Raises CallError."""
    candidates = prepared.candidates
    if len(survivors) < len(candidates):
        candidates = tuple(candidates[row] for row in survivors.tolist())
    with_pairs = replace(prepared, pairs=_pairs_of(prepared, candidates), survivors=survivors)
    _refuse_truncation(with_pairs)
    return with_pairs


def _pairs_of(prepared: Prepared, candidates: Sequence[Candidate]) -> EncodedPairs:
    """The pairs of the call's question with these candidates. Raises CallError."""
    call, model = prepared.call, prepared.model
    try:
        return model.encoder.encode(
            call.question,
            candidates,
            prepared.caches.tokens,
            partition=prepared.caches.tenant,
            windowing=call.windowing,
            most_tokens=call.most_tokens,
            instruction=call.instruction if model.checkpoint.config.takes_instruction else None,
        )
    except InstructionError as error:
        raise CallError(f"instruction: {error}") from error


def _refuse_truncation(prepared: Prepared) -> None:
    """Raise CallError if a text was cut and the call refuses that."""
    if prepared.call.refuse_truncation and (warnings := prepared.cut_warnings()):
        text = f"{'; '.join(warnings)}; send shorter texts or allow truncation"
        raise CallError(text, tokens=prepared.tokens)
