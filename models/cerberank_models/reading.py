"""The warnings in answers: on texts that were not read whole, other languages, and options without effect."""

from __future__ import annotations

from collections.abc import Sequence

from cerberank_models.config import EncodingConfig, RankerConfig
from cerberank_models.encoding import Candidate
from cerberank_models.language import names_of, other_language
from cerberank_models.request import is_blank
from cerberank_models.text_config import TextEncodingConfig
from cerberank_models.windows import Windowing

SAMPLE, SAMPLE_CHARACTERS = 8, 60
"""The candidates' language is guessed from this many candidates, evenly spread, and this many characters of each."""


def call_warnings(
    question: str,
    candidates: Sequence[Candidate],
    config: RankerConfig,
    drop_ratio: float | Sequence[float] | None,
) -> list[str]:
    """Warnings on empty texts, on languages that the model is not for, and on options without effect on this model."""
    warnings = []
    if empty := sum(is_blank(candidate.text) for candidate in candidates):
        warnings.append("1 candidate is empty" if empty == 1 else f"{empty} candidates are empty")
    if config.encoding.segments == 2 and any(candidate.previous or candidate.next for candidate in candidates):
        warnings.append("this model does not read the previous and next sentence")
    if drop_ratio and config.scored_stages == 1:
        warnings.append("this model has no exits: drop_ratio has no effect")
    return warnings + language_warnings(question, candidates, config.languages)


def language_warnings(question: str, candidates: Sequence[Candidate], languages: Sequence[str]) -> list[str]:
    """Warnings on a question and on candidates that seem to be in another language than the model's `languages`.

    If `languages` is empty, nothing is checked.
    """
    if not languages:
        return []
    sample = candidates[:: -(-len(candidates) // SAMPLE) or 1]
    asked = other_language(question, languages)
    told = other_language("\n".join(candidate.text[:SAMPLE_CHARACTERS] for candidate in sample), languages)
    found = {"the question seems": asked, "most candidates seem": told}
    if asked == told:
        found = {"the question and most candidates seem": asked}
    model = f"this model is for {names_of(languages)}: the order means little"
    return [f"{what} to be {language}, {model}" for what, language in found.items() if language]


def cut_warnings(
    *,
    question: bool,
    candidates: int,
    encoding: EncodingConfig | TextEncodingConfig,
    windowing: Windowing | None = None,
    most_tokens: int | None = None,
) -> list[str]:
    """A warning if the question's end was not read, and one if the ends of `candidates` candidates were not read."""
    if isinstance(encoding, TextEncodingConfig):
        longest, limits = encoding.question_length, f"a text holds {encoding.document_length} tokens"
    else:
        longest = encoding.question_length if encoding.truncation == "last_first" else encoding.max_length
        limits = f"a pair holds {encoding.max_length} tokens"
    warnings = []
    if question:
        warnings.append(f"the question's end was not read: at most {longest} of its tokens fit")
    if candidates:
        ends = "end of 1 candidate was" if candidates == 1 else f"ends of {candidates} candidates were"
        if windowing is not None:
            limits += f", a text has at most {windowing.most} windows, a request {windowing.most_rows}"
        if most_tokens is not None:
            limits = f"the request limits a text to {most_tokens} tokens; {limits}"
        warnings.append(f"the {ends} not read: {limits}")
    return warnings


def unknown_warnings(*, question: bool, candidates: int) -> list[str]:
    """Warnings if the vocabulary lacks most tokens of the question, or of `candidates` candidates."""
    warnings = []
    if question:
        warnings.append("the model's vocabulary lacks most of the question's tokens: the order means little")
    if candidates:
        texts = "1 candidate" if candidates == 1 else f"{candidates} candidates"
        warnings.append(f"the model's vocabulary lacks most tokens of {texts}: their scores mean little")
    return warnings
