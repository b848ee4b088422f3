"""The warnings in answers: on texts that were not read whole, other languages, and options without effect."""

from __future__ import annotations

from collections.abc import Sequence

from cerberank_models.checkpoint.folder import Checkpoint
from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate
from cerberank_models.language import names_of, other_language
from cerberank_models.ranking.call import RankCall
from cerberank_models.request import is_blank
from cerberank_models.text_config import TextEncodingConfig
from cerberank_models.windows import Windowing

SAMPLE, SAMPLE_CHARACTERS = 8, 60
"""The candidates' language is guessed from this many candidates, evenly spread, and this many characters of each."""


def call_warnings(call: RankCall, checkpoint: Checkpoint) -> list[str]:
    """Warnings on empty texts, on a calibration and languages that do not fit, and on options without effect."""
    config, warnings = checkpoint.config, []
    if empty := sum(is_blank(candidate.text) for candidate in call.candidates):
        warnings.append("1 candidate is empty" if empty == 1 else f"{empty} candidates are empty")
    if config.encoding.segments == 2 and any(candidate.previous or candidate.next for candidate in call.candidates):
        warnings.append("this model does not read the previous and next sentence")
    if call.drop_ratio and config.scored_stages == 1:
        warnings.append("this model has no exits: drop_ratio has no effect")
    if checkpoint.outdated_calibration:
        warnings.append(
            "the calibration of this model is of an earlier release, so scores are the network's own: "
            "`cerberank checkpoint calibrate` makes a new one"
        )
    warnings += language_warnings(call.question, call.candidates, config.languages)
    if call.instruction and not config.takes_instruction:
        warnings.append("this model has no prompt: instruction has no effect")
    if call.latency_target_ms is not None and call.drop_ratio is None and not config.tuned_schedules:
        warnings.append("this model has no tuned schedules: latency_target_ms has no effect")
    return warnings


def outcome_warnings(*, complete: bool, unscored: int) -> list[str]:
    """Warnings if the deadline passed, and if `unscored` candidates were not scored before it."""
    warnings = []
    if not complete:
        warnings.append("the deadline passed: the order is what was known then")
    if unscored:
        count = "1 candidate was" if unscored == 1 else f"{unscored} candidates were"
        warnings.append(f"{count} not scored in time; what has no score stands last, in the order of the request")
    return warnings


def language_warnings(question: str, candidates: Sequence[Candidate], languages: Sequence[str]) -> list[str]:
    """Warnings on a question and on candidates that seem to be in another language than the model's `languages`.

    If `languages` is empty, nothing is checked.
    """
    if not languages:
        return []
    sample = candidates[:: -(-len(candidates) // SAMPLE) or 1]
    of_question = other_language(question, languages)
    of_candidates = other_language("\n".join(each.text[:SAMPLE_CHARACTERS] for each in sample), languages)
    others = {"the question seems": of_question, "most candidates seem": of_candidates}
    if of_question == of_candidates:
        others = {"the question and most candidates seem": of_question}
    model = f"this model is for {names_of(languages)}: the order means little"
    return [f"{texts} to be {language}, {model}" for texts, language in others.items() if language]


def cut_warnings(
    *,
    question: bool,
    candidates: int,
    encoding: EncodingConfig | TextEncodingConfig,
    windowing: Windowing | None = None,
    most_tokens: int | None = None,
) -> list[str]:
    """A warning if a part of the question was not read, and one if the ends of `candidates` candidates were not."""
    if isinstance(encoding, TextEncodingConfig):
        limits = f"a text holds {encoding.document_length} tokens"
    else:
        limits = f"a pair holds {encoding.max_length} tokens"
    warnings = []
    if question:
        read = "only the question's end was read"
        if encoding.question_part == "start":
            read = "the question's end was not read"
        fits = f"at most {encoding.question_limit} tokens fit"
        warnings.append(f"{read}: {fits}; shorten it, and send it without the chat before it")
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
