"""The options of the examples that a step has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from cerberank_models.commands.values import RECIPE_KEY, Whole
from cerberank_training.data.sampling import NegativeSampling, PairSampling, Sampling


@Parameter(name="*", group=Group("Examples of a step", sort_key=3))
@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleOptions:
    """The rule by which the examples of a step are drawn. Options without effect are refused as a call is read."""

    sampling: Literal["grouped", "pairs"] = "grouped"
    """Examples of a step: groups of a question's candidates (ours), or every labelled pair once an epoch (papers)."""
    unanswered: Literal["keep", "drop"] = "drop"
    """Questions without a positive in --sampling pairs: kept or left out."""
    negatives: Whole = 2
    """Negatives of a group from the question's own candidates."""
    hard_negatives: Whole = 2
    """Negatives that share rare words, from the article if there is one."""
    hard_pool: Annotated[Whole, RECIPE_KEY] = 12
    """Number of sentences with the rarest shared words from which hard negatives are drawn."""
    other_negatives: Whole = 1
    """Other negatives, from the article, or else from the candidates."""

    def chosen(self) -> Sampling:
        """The sampling."""
        if self.sampling == "pairs":
            return PairSampling(unanswered=self.unanswered == "keep")
        return NegativeSampling(
            negatives=self.negatives,
            hard_negatives=self.hard_negatives,
            hard_pool=self.hard_pool,
            other_negatives=self.other_negatives,
        )
