"""The triples of a step of pairwise training: a question, with a positive and a negative from its BM25 list (TRMD).

As in `sampling.py`, the triples of step s depend only on the data, the seed and s.
"""

from __future__ import annotations

import random
from collections.abc import Sequence, Set
from dataclasses import dataclass

from cerberank_papers.pairwise.settings import TripleSampling
from cerberank_training.data import DataError, Question, corpus_texts
from cerberank_training.data.bm25 import Bm25Index
from cerberank_training.data.epochs import EpochOrder
from cerberank_training.data.question import naming


@dataclass(frozen=True, slots=True)
class Triple:
    """The texts of a question, of a candidate that answers it, and of one that does not."""

    question: str
    positive: str
    negative: str


class TripleSampler:
    """Draws the triples of each step: a positive and a negative for each of its questions."""

    def __init__(
        self, questions: Sequence[Question], corpus: Sequence[str], sampling: TripleSampling, *, seed: int
    ) -> None:
        """Questions without a positive are left out, and with `own_share=1` those without a negative.

        BM25 searches the texts of `corpus`, which is in memory with its index. Raises ValueError when no question is
        left, or when `corpus` has no word.
        """
        needs_own = sampling.own_share == 1
        self._questions = [q for q in questions if any(q.labels) and not (needs_own and all(q.labels))]
        if not self._questions:
            raise DataError("no question has a positive candidate and a negative: nothing can be learnt")
        self._corpus = corpus
        self._sampling = sampling
        self._seed = seed
        self.index = None if needs_own else Bm25Index(corpus)
        """The index of the corpus; None if all negatives are the questions' own candidates."""
        self._order = EpochOrder(len(self._questions), seed=seed)

    def __len__(self) -> int:
        """The number of questions in one epoch, each of which gives a triple."""
        return len(self._questions)

    def step(self, step: int, size: int) -> list[Triple]:
        """The `size` triples of step `step`, counted from 0; each epoch has its own order.

        Raises ValueError if every text of the corpus is relevant to a question, and if no list has a positive.
        """
        rng = random.Random(f"{self._seed}/triples/{step}")
        return [self._triple(index, rng) for index in self._order.step(step, size)]

    def _triple(self, index: int, rng: random.Random) -> Triple:
        """A triple of the question at `index`, or of the next question whose list has a positive."""
        for offset in range(len(self._questions)):
            question = self._questions[(index + offset) % len(self._questions)]
            positives, negatives = self._lists(question, rng)
            if positives:
                return Triple(question=question.text, positive=rng.choice(positives), negative=rng.choice(negatives))
        raise ValueError(
            f"no question has a relevant text among BM25's best {self._sampling.top}: --positives any draws from all"
        )

    def _lists(self, question: Question, rng: random.Random) -> tuple[list[str], list[str]]:
        """The texts among which a positive is drawn (may be empty), and those among which a negative is drawn."""
        relevant = [row.candidate.text for row in question.candidates if row.relevant]
        own = [row.candidate.text for row in question.candidates if not row.relevant]
        if rng.random() < self._sampling.own_share and own:
            return relevant, own
        places = self.index.top(question.text, self._sampling.top) if self.index else []
        listed = [self._corpus[place] for place in places]
        known = set(listed) if self._sampling.positives == "listed" else set(relevant)
        positives = [text for text in relevant if text in known]
        return positives, self._negatives(question, listed, set(relevant)) if positives else []

    def _negatives(self, question: Question, listed: Sequence[str], relevant: Set[str]) -> list[str]:
        """The texts of the list that are not relevant; if there are none, all such texts of the corpus."""

        def is_negative(text: str) -> bool:
            return text not in relevant and not question.holds_answer(text)

        negatives = list(filter(is_negative, listed)) or list(filter(is_negative, self._corpus))
        if not negatives:
            raise ValueError(f"question {question.id!r} has no negative: every text of the corpus is relevant to it")
        return negatives


def triple_sampler_for(
    spec: str, questions: Sequence[Question], sampling: TripleSampling, *, seed: int
) -> TripleSampler:
    """A sampler for `FORMAT:PATH`. Its corpus has the documents of `trec` and `beir`, or else all candidates.

    Raises ValueError if BM25 is used and a run has missed relevant texts, because these could become negatives.
    """
    if sampling.own_share < 1 and "run=" in spec and (missing := sum(bool(question.missed) for question in questions)):
        raise ValueError(
            f"the run of {spec} has missed relevant texts of {missing} questions, which BM25 would give as negatives: "
            "--own-share 1 draws from the run alone"
        )
    corpus = [] if sampling.own_share == 1 else corpus_texts(spec, questions)
    with naming(spec):
        return TripleSampler(questions, corpus, sampling, seed=seed)
