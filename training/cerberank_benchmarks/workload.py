"""The questions of the benchmarks, with generated sentences of mixed length or candidates of a data set."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from cerberank_benchmarks.settings import BenchmarkSettings
from cerberank_models.encoding import Candidate
from cerberank_training.data import read_questions, sampled

TEXT = (
    "tower river answer city metal sentence bridge engine question north history built opened water people during "
    "largest first second country the of in and was by for with it on from at as an is are which were"
)
WORDS = TEXT.split()
POOL = 20
"""Number of questions of a data set whose candidates are used."""


@dataclass(frozen=True, slots=True)
class Task:
    """A question and the texts to rank."""

    question: str
    texts: tuple[str, ...]

    @property
    def candidates(self) -> list[Candidate]:
        """The texts as input of the encoder."""
        return [Candidate(text=text) for text in self.texts]


class Workload:
    """Creates tasks of any size; the same settings give the same tasks."""

    def __init__(self, settings: BenchmarkSettings) -> None:
        """Read the data, if any. Texts of more than `words[1]` words are left out, because peers would truncate them.

        Raises DataError.
        """
        self._settings = settings
        self._question = "which tower was built first in the largest city of the north"
        self._pool: tuple[str, ...] = ()
        if settings.data:
            questions = sampled(
                list(read_questions(settings.one_set("a benchmark of speed"))),
                size=POOL,
                seed=settings.seed,
                name="clean",
            )
            self._question = questions[0].text
            texts = (each.candidate.text for question in questions for each in question.candidates)
            self._pool = tuple(text for text in texts if len(text.split()) <= settings.words[1])

    def task(self, candidates: int, *, seed: int = 0) -> Task:
        """A question with this number of candidates. They are distinct, as identical ones would be scored only once."""
        rng = random.Random(f"{self._settings.seed} {seed}")
        texts = self._real(candidates, rng) if self._pool else self._generated(candidates, rng)
        return Task(self._question, tuple(texts))

    def _generated(self, candidates: int, rng: random.Random) -> Sequence[str]:
        least, most = self._settings.words
        return [f"{index} " + " ".join(rng.choices(WORDS, k=rng.randint(least, most))) for index in range(candidates)]

    def _real(self, candidates: int, rng: random.Random) -> Sequence[str]:
        start = rng.randrange(len(self._pool))
        texts = itertools.islice(itertools.cycle(self._pool), start, start + candidates)
        return [f"{index} {text}" for index, text in enumerate(texts)]
