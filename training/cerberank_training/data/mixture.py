"""Draws groups from several data sets, with negatives and forms of questions that the sets themselves lack."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_training.data.chat_form import chat_form
from cerberank_training.data.distractors import changed
from cerberank_training.data.question_table import QuestionTable
from cerberank_training.data.sampling import Group, PairSampler, Sampler


@dataclass(frozen=True, kw_only=True, slots=True)
class Additions:
    """Changes of drawn groups; shares are of all groups. Ours, in no paper."""

    temperature: float = 1.0
    """A set's weight is its number of questions to this power: 1 draws every question equally often, 0 every set."""
    elsewhere: int = 0
    """Negatives from other sets, or from other questions where there is one set: related to nothing in the question."""
    questions: float = 0.0
    """Share with another question of the set as a negative: a text that repeats the question's words and answers
    nothing, as lists of questions have. cerberank-mini 2.1.0 prefers such a text to the answer in three of four cases
    (docs/measurements.md)."""
    changed: float = 0.0
    """Share with a positive whose number, name or polarity is changed, as a negative."""
    chat: float = 0.0
    """Share whose question is in chat form."""
    unanswered: float = 0.0
    """Share without a positive, so that a ranker learns that nothing answers."""


class Mixture:
    """Gives groups of several sets in turn, each set in an order of its own; deterministic by the seed."""

    def __init__(
        self,
        samplers: Mapping[str, Sampler | PairSampler],
        tables: Mapping[str, QuestionTable],
        additions: Additions,
        *,
        seed: int,
    ) -> None:
        """`samplers` and `tables` are those of each set, by `FORMAT:PATH`."""
        self._samplers, self._tables, self._additions, self._seed = samplers, tables, additions, seed

    def groups(self, count: int) -> Iterator[tuple[str, Group]]:
        """The first `count` groups, each with the set that it is from."""
        names = list(self._samplers)
        weights = [len(self._samplers[name]) ** self._additions.temperature for name in names]
        rng = random.Random(f"{self._seed}/mixture")
        drawn: Counter[str] = Counter()
        for _ in range(count):
            (name,) = rng.choices(names, weights)
            (group,) = self._samplers[name].step(drawn[name], 1)
            drawn[name] += 1
            yield name, self._with_additions(name, group, rng)

    def _with_additions(self, name: str, group: Group, rng: random.Random) -> Group:
        additions = self._additions
        positives = [candidate for candidate, label in zip(group.candidates, group.labels, strict=True) if label]
        negatives = [candidate for candidate, label in zip(group.candidates, group.labels, strict=True) if not label]
        if positives and rng.random() < additions.changed:
            wrong = changed(group.question, positives[0], negatives, rng)
            negatives += [wrong] if wrong is not None else []
        # Without this addition nothing is drawn for it: the groups of earlier commands stay as they were.
        if additions.questions and rng.random() < additions.questions:
            other = self._tables[name][rng.randrange(len(self._tables[name]))].text
            negatives += [Candidate(text=other)] if folded(other) != folded(group.question) else []
        taken = {folded(candidate.text) for candidate in group.candidates}
        negatives += [text for text in self._elsewhere(name, rng) if folded(text.text) not in taken]
        if negatives and rng.random() < additions.unanswered:
            positives = []
        question = chat_form(group.question, rng) if rng.random() < additions.chat else group.question
        return replace(
            group,
            question=question,
            candidates=(*positives, *negatives),
            labels=(*(1.0 for _ in positives), *(0.0 for _ in negatives)),
        )

    def _elsewhere(self, name: str, rng: random.Random) -> Sequence[Candidate]:
        """Candidates of random questions of other sets."""
        others = [table for other, table in self._tables.items() if other != name] or [self._tables[name]]
        drawn = []
        for _ in range(self._additions.elsewhere):
            table = rng.choice(others)
            question = rng.randrange(len(table))
            _, row = table.pair(question, rng.randrange(int(table.sizes[question])))
            drawn.append(row.candidate)
        return drawn
