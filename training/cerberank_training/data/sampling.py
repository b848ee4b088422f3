"""The pairs of a training step: groups of a question's candidates (our choice), or single pairs (as in the papers).

The groups of step s depend only on the seed and s. Therefore a resumed run continues exactly where it stopped, and
several processes draw the same groups without communicating.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import cyclopts
import numpy as np
from cyclopts import Parameter

from cerberank_models.commands.values import RECIPE_KEY, Whole
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_training.data import Articles, DataError, Question, articles_path
from cerberank_training.data.epochs import EpochOrder
from cerberank_training.data.question import naming
from cerberank_training.data.question_table import QuestionTable, QuestionTexts

LOOKED_AT = 200
"""The number of groups that are encoded before a run to count the pairs that do not fit."""
WORD = re.compile(r"\w+")
NOTHING_TO_RANK = (
    "no question has a negative candidate, and positives alone teach no ranking: `run=` of beir data names the ranking "
    "that candidates come from, and `cerberank data mine` finds negatives"
)


@Parameter(name="*", group=cyclopts.Group("Examples of a step", sort_key=3))
@dataclass(frozen=True, kw_only=True, slots=True)
class ExampleOptions:
    """The rule by which the examples of a step are drawn. Options without effect are refused as a call is read.

    A group has one positive and numbers of negatives from each source; groups are from no paper. For hard and other
    negatives, the article is the part outside the answer's paragraph. If data have no articles, the question's own
    candidates are used instead, so that every number has an effect with every format. Pairs are independent of their
    questions, as in the papers: in ASNQ, training then sees 342 negatives for each positive.
    """

    sampling: Literal["grouped", "pairs"] = "grouped"
    """Groups of a question's candidates, or every labelled pair once an epoch."""
    unanswered: Literal["keep", "drop"] = "drop"
    """Questions without a positive, with --sampling pairs."""
    negatives: Whole = 2
    """Negatives from the question's own candidates."""
    hard_negatives: Whole = 2
    """Negatives of the article that share rare words."""
    hard_pool: Annotated[Whole, RECIPE_KEY] = 12
    """Number of sentences with the rarest shared words from which hard negatives are drawn."""
    other_negatives: Whole = 1
    """Other negatives of the article."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """One question with some of its candidates in a step. In the groups of a Sampler the positive comes first."""

    question: str
    candidates: tuple[Candidate, ...]
    labels: tuple[float, ...]
    answers: tuple[str, ...] = ()
    """The question's short answers, as in `Question`."""


class Sampler:
    """Draws the groups of each step. `outside(question)` gives the article's unlabelled sentences, if there are any."""

    def __init__(
        self,
        questions: Sequence[Question],
        sampling: ExampleOptions,
        *,
        seed: int,
        outside: Callable[[Question], Sequence[Candidate]] | None = None,
        unanswered: bool = False,
    ) -> None:
        """Questions without a positive are left out; with `unanswered` they give groups with only negatives.

        Raises ValueError when no question is left, or none has a negative.
        """
        self._questions = QuestionTable.of(questions)
        self._usable_flags = (self._questions.positives > 0) | unanswered
        self._usable = np.flatnonzero(self._usable_flags)
        if not len(self._usable):
            raise DataError("no question has a positive candidate: nothing can be learnt")
        self._sampling = sampling
        self._seed = seed
        self._outside = outside
        if not sampling.negatives + sampling.hard_negatives + sampling.other_negatives:
            raise ValueError(
                "--negatives, --hard-negatives and --other-negatives are 0: no question would get a negative"
            )
        own = self._draws_own and (self._questions.sizes > self._questions.positives)[self._usable].any()
        if not own and not self.draws_outside:
            raise DataError(NOTHING_TO_RANK)
        self._rarity = _rarity(self._questions.question_texts() if sampling.hard_negatives else ())
        self._words: dict[str, frozenset[str]] = {}
        self._order = EpochOrder(len(self._usable), seed=seed)

    def __len__(self) -> int:
        """The number of questions in one epoch."""
        return len(self._usable)

    @property
    def draws_outside(self) -> bool:
        """True if groups have negatives from articles, which are not in `known_pairs`."""
        return self._outside is not None and self._sampling.hard_negatives + self._sampling.other_negatives > 0

    @property
    def _draws_own(self) -> bool:
        """True if groups have negatives from a question's own candidates."""
        return self._sampling.negatives > 0 or self._outside is None

    def known_pairs(self) -> Iterator[QuestionTexts]:
        """The questions with their own candidates that can be drawn."""
        return self._questions.texts(self._usable_flags, relevant=not self._draws_own)

    def step(self, step: int, size: int) -> list[Group]:
        """The `size` groups of step `step`, counted from 0; each epoch has its own order."""
        rng = random.Random(f"{self._seed}/step/{step}")
        return [self._group(self._questions[int(self._usable[index])], rng) for index in self._order.step(step, size)]

    def _group(self, question: Question, rng: random.Random) -> Group:
        positives = [c.candidate for c in question.candidates if c.label]
        positive = [rng.choice(positives)] if positives else []
        own = [c.candidate for c in question.candidates if not c.label]
        negatives = rng.sample(own, min(self._sampling.negatives, len(own)))
        if self._sampling.hard_negatives + self._sampling.other_negatives:
            article = own if self._outside is None else self._outside(question)
            outside = [candidate for candidate in article if candidate not in negatives]
            hardest = self._hardest(question.text, outside) if self._sampling.hard_negatives else []
            hard = rng.sample(hardest, min(self._sampling.hard_negatives, len(hardest)))
            others = [candidate for candidate in outside if candidate not in hard]
            negatives += hard + rng.sample(others, min(self._sampling.other_negatives, len(others)))
        return Group(
            question=question.text,
            candidates=(*positive, *negatives),
            labels=(*(1.0 for _ in positive), *(0.0 for _ in negatives)),
            answers=question.answers,
        )

    def _hardest(self, question: str, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The `hard_pool` candidates whose common words with the question have the highest sum of rarities."""
        words = _words(question)
        shared = [
            sum(self._rarity[word] for word in words & self._candidate_words(candidate.text))
            for candidate in candidates
        ]
        ranked = sorted(range(len(candidates)), key=lambda index: -shared[index])
        return [candidates[index] for index in ranked[: self._sampling.hard_pool]]

    def _candidate_words(self, text: str) -> frozenset[str]:
        """The words of a candidate. They are cached for articles, whose questions all need the same words."""
        if self._outside is None:
            return _words(text)
        if text not in self._words:
            self._words[text] = _words(text)
        return self._words[text]


class PairSampler:
    """Gives the pairs of each step as groups of one. Memory holds at most 8 bytes for a pair and 40 for a question."""

    def __init__(self, questions: Sequence[Question], sampling: ExampleOptions, *, seed: int) -> None:
        """Raise ValueError when no question has a positive, or no kept question has a negative."""
        self._questions = QuestionTable.of(questions)
        if not self._questions.positives.any():
            raise DataError("no question has a positive candidate: nothing can be learnt")
        self._unanswered = sampling.unanswered == "keep"
        self._usable = np.flatnonzero((self._questions.positives > 0) | self._unanswered)
        if (self._questions.sizes == self._questions.positives)[self._usable].all():
            raise DataError(NOTHING_TO_RANK)
        self._ends = np.cumsum(self._questions.sizes[self._usable])
        self._order = EpochOrder(len(self), seed=seed, compact=True)

    def __len__(self) -> int:
        """The number of pairs in one epoch."""
        return int(self._ends[-1])

    def known_pairs(self) -> Iterator[QuestionTexts]:
        """The kept questions with all candidates, which are the pairs of an epoch, in the order of the data."""
        return self._questions.texts((self._questions.positives > 0) | self._unanswered)

    def step(self, step: int, size: int) -> list[Group]:
        """The `size` pairs of step `step`, counted from 0; each epoch has its own order."""
        return [self._group(index) for index in self._order.step(step, size)]

    def _group(self, index: int) -> Group:
        """The pair at `index` among all kept pairs in the order of the data."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        question = int(self._usable[number])
        row = index - int(self._ends[number]) + int(self._questions.sizes[question])
        text, pair = self._questions.pair(question, row)
        return Group(question=text, candidates=(pair.candidate,), labels=(float(pair.relevant),))


class SampledGroups:
    """Groups that were sampled beforehand, in the order of the file. The candidates of each question are a group."""

    def __init__(self, spec: str, questions: Sequence[Question]) -> None:
        """Use the questions of `FORMAT:PATH`. Raises DataError when there are none, or none has a negative."""
        if not questions:
            raise DataError(f"{spec}: no question: nothing can be learnt")
        self._questions = QuestionTable.of(questions)
        if (self._questions.sizes == self._questions.positives).all():
            raise DataError(f"{spec}: {NOTHING_TO_RANK}")

    def __len__(self) -> int:
        """The number of groups."""
        return len(self._questions)

    def known_pairs(self) -> Iterator[QuestionTexts]:
        """The questions with all candidates of their groups."""
        return self._questions.texts()

    def step(self, step: int, size: int) -> list[Group]:
        """The `size` groups from index `step * size` on. The first group follows the last."""
        chosen = (self._questions[index % len(self._questions)] for index in range(step * size, (step + 1) * size))
        return [
            Group(
                question=question.text,
                candidates=tuple(row.candidate for row in question.candidates),
                labels=tuple(float(row.relevant) for row in question.candidates),
            )
            for question in chosen
        ]


def first_sizes(groups: Sequence[Group]) -> str:
    """A line with the sizes of the first step.

    >>> rows = tuple(Candidate(text=text) for text in "abc")
    >>> first_sizes([Group(question="q", candidates=rows, labels=(1.0, 0.0, 0.0))])
    'the first step has 1 question and 3 pairs, 1 positive and 2 negative'
    """
    questions, pairs = len({group.question for group in groups}), sum(len(group.labels) for group in groups)
    positives = sum(label > 0 for group in groups for label in group.labels)
    return (
        f"the first step has {questions} question{'s' if questions > 1 else ''} and {pairs} pairs, {positives} "
        f"positive and {pairs - positives} negative"
    )


def cut_note(cut: int, texts: int, *, what: str, option: str) -> str:
    """A clause that says that training will cut texts; empty if all of the `texts` that were looked at fit.

    >>> cut_note(412, 1000, what="pairs", option="--max-length")
    'of 1,000 drawn pairs 412 do not fit into --max-length, and are learnt from as far as they fit'
    >>> cut_note(0, 1000, what="pairs", option="--max-length")
    ''
    """
    if not cut:
        return ""
    return f"of {texts:,} drawn {what} {cut:,} do not fit into {option}, and are learnt from as far as they fit"


def sampler_for(
    spec: str, questions: Sequence[Question], sampling: ExampleOptions, *, seed: int, unanswered: bool = False
) -> Sampler | PairSampler:
    """A sampler for `FORMAT:PATH`. If there is a file `articles-*` beside PATH, groups draw negatives from it.

    `unanswered` keeps questions without a positive in groups; for pairs this is an option of `sampling`. Raises
    DataError, which names the data, when nothing can be learnt from the questions.
    """
    if sampling.sampling == "pairs":
        with naming(spec):
            return PairSampler(questions, sampling, seed=seed)
    articles = _articles(spec)
    outside = Articles(articles).outside if articles and sampling.hard_negatives + sampling.other_negatives else None
    with naming(spec):
        return Sampler(questions, sampling, seed=seed, outside=outside, unanswered=unanswered)


def _articles(spec: str) -> Path | None:
    """The file of articles beside the file of `FORMAT:PATH`, if there is one."""
    path = Path(spec.partition(":")[2])
    return articles if path.is_file() and (articles := articles_path(path)).exists() else None


def _words(text: str) -> frozenset[str]:
    return frozenset(WORD.findall(text.lower()))


def _rarity(questions: Iterable[str]) -> Counter[str]:
    """Inverse document frequency of words among the questions (scaled to integers for Counter)."""
    counts: Counter[str] = Counter()
    total = 0
    for text in questions:
        counts.update(_words(text))
        total += 1
    return Counter({word: round(1000 * math.log(1 + total / count)) for word, count in counts.items()})


def count_cut(groups: Iterable[Group], encoder: PairEncoder) -> tuple[int, int]:
    """The number of pairs that the encoder cuts, in the question or the candidate, and the number of all pairs."""
    cut = pairs = 0
    for group in groups:
        encoded = encoder.encode(group.question, group.candidates)
        cut += len(encoded) if encoded.question_truncated else int(encoded.truncated.sum())
        pairs += len(encoded)
    return cut, pairs


def calibration_texts(
    questions: Sequence[Question], *, size: int = 200, candidates: int = 16, seed: int = 0
) -> list[tuple[str, list[Candidate]]]:
    """A sample of `size` questions with at most `candidates` each. The same data and seed give the same sample."""
    rng = random.Random(seed)
    return [
        (
            question.text,
            [row.candidate for row in rng.sample(question.candidates, min(candidates, len(question.candidates)))],
        )
        for question in rng.sample(questions, min(size, len(questions)))
    ]
