"""Which triples a step of pairwise training sees: a question, a positive, and a negative that BM25 ranks high (TRMD).

Deterministic: the triples of step s follow from the data, the seed and s alone, as those of `sampling.py` do.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

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
    """Where negatives come from. Raises ValueError for values out of range."""

    top: int = 100
    """The number of BM25's best texts for the question from which a negative is drawn."""
    own: float = 0.0
    """The share of triples whose negative is one of the question's own candidates, where it has one; 1 needs no BM25.
    (For squad-as2 these are the sentences of the answer's paragraph.)"""

    def __post_init__(self) -> None:
        if self.top < 1 or not 0 <= self.own <= 1:
            raise ValueError("triples need top of 1 or more, and own between 0 and 1")


class TripleSampler:
    """Draws the triples of each step: one positive and one negative of each of its questions."""

    def __init__(
        self, questions: Sequence[Question], corpus: Sequence[str], sampling: TripleSampling, *, seed: int
    ) -> None:
        """Questions without a positive are left out, and with `own=1` those without a negative.

        Negatives of BM25 are texts of `corpus`, which is held in memory with its index. Raises ValueError when no
        question is left, or `corpus` holds no word.
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

        Raises ValueError for a question to which every text of the corpus is relevant.
        """
        rng = random.Random(f"{self._seed}/triples/{step}")
        return [self._triple(self._questions[index], rng) for index in self._order.step(step, size)]

    def _triple(self, question: Question, rng: random.Random) -> Triple:
        positive = rng.choice([row.candidate.text for row in question.candidates if row.relevant])
        own = [row.candidate.text for row in question.candidates if not row.relevant]
        from_own = rng.random() < self._sampling.own and own
        negative = rng.choice(own if from_own else self._negatives(question))
        return Triple(question=question.text, positive=positive, negative=negative)

    def _negatives(self, question: Question) -> list[str]:
        """BM25's best texts that are not relevant; any such text of the corpus where BM25 finds none."""
        relevant = {row.candidate.text for row in question.candidates if row.relevant}

        def is_negative(text: str) -> bool:
            return text not in relevant and not question.holds_answer(text)

        places = self.index.top(question.text, self._sampling.top) if self.index else []
        negatives = [self._corpus[place] for place in places if is_negative(self._corpus[place])]
        negatives = negatives or [text for text in self._corpus if is_negative(text)]
        if not negatives:
            raise ValueError(f"question {question.id!r} has no negative: every text of the corpus is relevant to it")
        return negatives


def triple_sampler_for(
    spec: str, questions: Sequence[Question], sampling: TripleSampling, *, seed: int
) -> TripleSampler:
    """A sampler for `FORMAT:PATH`; its corpus are the collection's documents for `trec` and `beir`, else all
    candidates.
    """
    corpus = [] if sampling.own == 1 else corpus_texts(spec, questions)
    return TripleSampler(questions, corpus, sampling, seed=seed)
