"""What pairwise training reads: a question with a candidate that answers it and one that does not (TRMD section 4)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Triple:
    """One example of pairwise training; all three are texts as they will be tokenised."""

    question: str
    positive: str
    negative: str
