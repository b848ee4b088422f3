"""The triples of a step of pairwise training: a question, a positive and a negative of BM25's list for it (TRMD).

Deterministic: the triples of step s follow from the data, the seed and s alone, as those of `sampling.py` do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Literal

from cerberank_training.data import Question
from cerberank_training.data.bm25 import Bm25Index
from cerberank_training.data.corpus import corpus_texts
from cerberank_training.data.epochs import EpochOrder


@dataclass(frozen=True, slots=True)
class Triple:
    """A question with a candidate that answers it and one that does not, as texts that will be tokenised."""

    question: str
    positive: str
    negative: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TripleSampling:
    """The sources of positives and negatives. Raises ValueError for values out of range."""

    positives: Literal["listed", "any"] = "listed"
    """`listed`: the relevant texts of the list that negatives come from (TRMD); a question whose list has none gives
    its place to the next one. `any`: all relevant texts of the question."""
    top: int = 100
    """The number of BM25's best texts for the question, its list."""
    own: float = 0.0
    """The share of triples whose list is the question's own candidates, where they have a negative; 1 needs no
    BM25. (For squad-as2 these are the sentences of the answer's paragraph, for TREC data with `run` that run.)"""

    def __post_init__(self) -> None:
        if self.top < 1 or not 0 <= self.own <= 1:
            raise ValueError("triples need top of 1 or more, and own between 0 and 1")


class TripleSampler:
    """Draws the triples of each step: one positive and one negative of each of its questions."""

    def __init__(
        self, questions: Sequence[Question], corpus: Sequence[str], sampling: TripleSampling, *, seed: int
    ) -> None:
        """Questions without a positive are left out, and with `own=1` those without a negative.

        BM25's lists are texts of `corpus`, which is held in memory with its index. Raises ValueError when no question
        is left, or `corpus` holds no word.
        """
        needs_own = sampling.own == 1
        self._questions = [q for q in questions if any(q.labels) and not (needs_own and all(q.labels))]
        if not self._questions:
            raise ValueError("no question has a positive candidate and a negative: nothing can be learnt")
        self._corpus, self._sampling, self._seed = corpus, sampling, seed
        self.index = None if needs_own else Bm25Index(corpus)
        """None where negatives are the questions' own alone; its `nbytes` are worth a line in the log."""
        self._order = EpochOrder(len(self._questions), seed=seed)

    def __len__(self) -> int:
        """Questions, and so triples, in one epoch."""
        return len(self._questions)

    def step(self, step: int, size: int) -> list[Triple]:
        """The `size` triples of step `step`, counted from 0; each epoch has its own order.

        Raises ValueError for a question to which every text of the corpus is relevant, and where no list has a
        positive.
        """
        rng = random.Random(f"{self._seed}/triples/{step}")
        return [self._triple(index, rng) for index in self._order.step(step, size)]

    def _triple(self, index: int, rng: random.Random) -> Triple:
        """A triple of the question at `index`, or of the first one behind it whose list has a positive."""
        for offset in range(len(self._questions)):
            question = self._questions[(index + offset) % len(self._questions)]
            positives, negatives = self._lists(question, rng)
            if positives:
                return Triple(question=question.text, positive=rng.choice(positives), negative=rng.choice(negatives))
        raise ValueError(
            f"no question has a relevant text among BM25's best {self._sampling.top}: --positives any draws from all"
        )

    def _lists(self, question: Question, rng: random.Random) -> tuple[list[str], list[str]]:
        """The texts that a positive is drawn from, perhaps none, and those that a negative is."""
        relevant = [row.candidate.text for row in question.candidates if row.relevant]
        own = [row.candidate.text for row in question.candidates if not row.relevant]
        if rng.random() < self._sampling.own and own:
            return relevant, own
        places = self.index.top(question.text, self._sampling.top) if self.index else []
        listed = [self._corpus[place] for place in places]
        known = set(listed) if self._sampling.positives == "listed" else set(relevant)
        positives = [text for text in relevant if text in known]
        return positives, self._negatives(question, listed, set(relevant)) if positives else []

    def _negatives(self, question: Question, listed: Sequence[str], relevant: Set[str]) -> list[str]:
        """The listed texts that are not relevant; any such text of the corpus where the list has none."""

        def is_negative(text: str) -> bool:
            return text not in relevant and not question.holds_answer(text)

        negatives = list(filter(is_negative, listed)) or list(filter(is_negative, self._corpus))
        if not negatives:
            raise ValueError(f"question {question.id!r} has no negative: every text of the corpus is relevant to it")
        return negatives


def triple_sampler_for(
    spec: str, questions: Sequence[Question], sampling: TripleSampling, *, seed: int
) -> TripleSampler:
    """A sampler for `FORMAT:PATH`; its corpus are the collection's documents for `trec` and `beir`, else all
    candidates.

    Raises ValueError for BM25's lists beside a run that has missed relevant texts: they would become negatives.
    """
    if sampling.own < 1 and "run=" in spec and (missing := sum(bool(question.missed) for question in questions)):
        raise ValueError(
            f"the run of {spec} has missed relevant texts of {missing} questions, which BM25 would give as negatives: "
            "--own 1 draws from the run alone"
        )
    corpus = [] if sampling.own == 1 else corpus_texts(spec, questions)
    return TripleSampler(questions, corpus, sampling, seed=seed)
