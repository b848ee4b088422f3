"""Warnings on what a model does not read of a question and its candidates, as answers have them."""

from __future__ import annotations

from collections.abc import Sequence

from cerberank_models.config import EncodingConfig, RankerConfig
from cerberank_models.encoding import Candidate
from cerberank_models.windows import Windowing


def call_warnings(
    candidates: Sequence[Candidate], config: RankerConfig, drop_ratio: float | Sequence[float] | None
) -> list[str]:
    """Warnings on empty texts and on what has no effect with this model."""
    warnings = []
    if empty := sum(not candidate.text.strip() for candidate in candidates):
        warnings.append("1 candidate is empty" if empty == 1 else f"{empty} candidates are empty")
    if config.encoding.segments == 2 and any(candidate.previous or candidate.next for candidate in candidates):
        warnings.append("this model does not read the previous and next sentence")
    if drop_ratio and config.scored_stages == 1:
        warnings.append("this model has no exits: drop_ratio has no effect")
    return warnings


def cut_warnings(
    *,
    question: bool,
    candidates: int,
    encoding: EncodingConfig,
    windowing: Windowing | None,
    most_tokens: int | None = None,
) -> list[str]:
    """Warnings on a question whose end was not read, and on the number of such candidates."""
    warnings = []
    if question:
        longest = encoding.question_length if encoding.truncation == "last_first" else encoding.max_length
        warnings.append(f"the question's end was not read: at most {longest} of its tokens fit")
    if candidates:
        ends = "end of 1 candidate was" if candidates == 1 else f"ends of {candidates} candidates were"
        limits = f"a pair holds {encoding.max_length} tokens"
        if windowing is not None:
            limits += f", a text has at most {windowing.most} windows, a request {windowing.most_rows}"
        if most_tokens is not None:
            limits = f"the request limits a text to {most_tokens} tokens; {limits}"
        warnings.append(f"the {ends} not read: {limits}")
    return warnings


def unknown_warnings(*, question: bool, candidates: int) -> list[str]:
    """Warnings on a question whose tokens the vocabulary mostly lacks, and on the number of such candidates."""
    warnings = []
    if question:
        warnings.append("the model's vocabulary lacks most of the question's tokens: the order means little")
    if candidates:
        texts = "1 candidate" if candidates == 1 else f"{candidates} candidates"
        warnings.append(f"the model's vocabulary lacks most tokens of {texts}: their scores mean little")
    return warnings
