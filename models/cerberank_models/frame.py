"""The tokens around the segments of a pair, as ids: an encoder's special tokens, or a decoder's prompt."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Tokenizer

from cerberank_models.tokens import ID_BYTES, packed, special_tokens
from cerberank_models.transformer import PairTemplate, PromptTemplate


class InstructionError(ValueError):
    """The instruction is too long, or the model takes none."""


QUESTION, CANDIDATE, INSTRUCTION = "{question}", "{candidate}", "{instruction}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """The tokens around segments: a pair is `head`, question, `join`, candidate, `tail`.

    A third segment, if there is one, stands before `tail`, after another `join`. Token ids are `bytes` of int32.
    """

    head: bytes
    join: bytes
    tail: bytes
    around_question: tuple[str, str] = ("", "")
    """The text before and the text after the question, which are tokenised together with it."""
    ids_around_question: bytes = b""
    """The tokens of `around_question`, which are not the question's own words."""
    before_question: int = 0
    """The number of tokens of the text before the question."""
    before_candidate: str = ""
    """The text before the candidate, which is tokenised together with it."""
    shared: bool = False
    """True if the tokens before the candidate can be computed once for several pairs."""
    first_separator: int = 0
    """The number of tokens of `join` that belong to the segment before it."""

    def special(self, segments: int) -> list[int]:
        """The number of the frame's tokens in each segment of a pair."""
        head, join, tail = (len(part) // ID_BYTES for part in (self.head, self.join, self.tail))
        rest = join - self.first_separator
        return [
            head + self.first_separator,
            *[rest + self.first_separator] * (segments - 2),
            rest + tail,
        ]

    def question(self, text: str) -> str:
        """The question as it is tokenised."""
        before, behind = self.around_question
        return f"{before}{text}{behind}"


def template_frame(tokenizer: Tokenizer, template: PairTemplate) -> Frame:
    """The frame of an encoder's special tokens; switches off the tokenizer's own truncation and padding.

    Raises ValueError when special tokens are missing from the vocabulary.
    """
    first, separator = special_tokens(tokenizer, template)
    return Frame(
        head=packed([first]), join=packed([separator] * template.between), tail=packed([separator]), first_separator=1
    )


def prompt_frame(tokenizer: Tokenizer, prompt: PromptTemplate, instruction: str | None) -> Frame:
    """The frame of a decoder's prompt with the given instruction, or with the prompt's default instruction if None.

    Raises InstructionError for an instruction if the prompt takes none.
    """
    if instruction is not None and not prompt.instruction:
        raise InstructionError("this model has no place for an instruction")
    chosen = prompt.default_instruction if instruction is None else instruction
    stated = () if chosen is None else (piece.replace(INSTRUCTION, chosen) for piece in prompt.instruction)
    before, behind = prompt.question.split(QUESTION)
    return Frame(
        head=_ids(tokenizer, *prompt.head, *stated, *prompt.lead),
        join=_ids(tokenizer, *prompt.join),
        tail=_ids(tokenizer, *prompt.tail),
        around_question=(before, behind),
        ids_around_question=_ids(tokenizer, before, behind),
        # A blank before the question belongs to its first token.
        before_question=len(_ids(tokenizer, before.rstrip(" "))) // ID_BYTES,
        before_candidate=prompt.candidate.removesuffix(CANDIDATE),
        shared=True,
    )


def _ids(tokenizer: Tokenizer, *pieces: str) -> bytes:
    return b"".join(packed(tokenizer.encode(piece, add_special_tokens=False).ids) for piece in pieces)
