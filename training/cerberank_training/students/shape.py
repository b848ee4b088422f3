"""The shape of a student, and what it reads, as settings. Importing them loads no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from cerberank_models.commands.values import RECIPE_KEY, Count, Integers, Whole, at_least
from cerberank_models.config import EncodingConfig, ExitConfig, NewTypes
from cerberank_models.windows import Reading


@Parameter(name="*", group=Group("Network", sort_key=1))
@dataclass(frozen=True, kw_only=True, slots=True)
class StudentShape:
    """`B_b kH_h` with exits, and what it reads, as options of `train distil`.

    The depth n = b + h is that of the base, or `layers` if it is set.
    """

    name: Annotated[str, Parameter(parse=False)] = "student"
    layers: Count | None = None
    """Number of the base's layers to use, counted from the first."""
    # None takes the depth of a checkpoint; for other bases all layers but one for the heads (`fitted`).
    body_layers: Whole | None = None
    """Layers of the body that all heads share (b of B_b kH_h); each head gets the base's other layers."""
    heads: Whole = 1
    """Number of heads (k of B_b kH_h)."""
    exits: Integers = ()
    """Body layers with an exit after them, such as 2,4, or none."""
    exit_pooling: Annotated[Literal["mean", "first"], RECIPE_KEY] = "mean"
    """Vector that exits read: the mean of the tokens, or the first token."""
    # `shared` adds no type, and the third segment has the last one.
    token_types: Annotated[Literal["shared"] | NewTypes, RECIPE_KEY] = "shared"
    """Token type of the context where the base has fewer than three: the last type (shared), a random row (fresh), a
    copy of the last row (copied), or a new random table (anew, as in SSP)."""
    max_length: Annotated[int, at_least(8)] = 128
    """Most tokens of a pair."""
    truncation: Annotated[Literal["last_first", "longest_first"], RECIPE_KEY] = "last_first"
    """Rule that cuts a pair of too many tokens: at the candidate's end (last_first), or at the ends of the longest
    texts (longest_first, as in the papers)."""
    question_length: Count = 48
    """Most tokens of the question."""
    windows: Reading = "best"
    """Reading of candidates that do not fit, on dev and by the checkpoint: the best or the mean score of their windows,
    or cut (off)."""
    context: bool = False
    """Read the previous and the next sentence too (SSP)."""

    @property
    def exit_configs(self) -> tuple[ExitConfig, ...]:
        """The exits as the network has them."""
        return tuple(ExitConfig(after=after, pooling=self.exit_pooling) for after in self.exits)

    @property
    def encoding(self) -> EncodingConfig:
        """The rules by which texts become a pair. Raises ValidationError if the question leaves no room."""
        longest_first = self.truncation == "longest_first"
        return EncodingConfig(
            max_length=self.max_length,
            truncation=self.truncation,
            # The longest text is cut, whichever it is, and the question's own bound is ignored.
            question_length=min(self.question_length, self.max_length - 7) if longest_first else self.question_length,
            segments=3 if self.context else 2,
            windows=self.windows,
        )
