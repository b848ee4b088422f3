"""Draws groups from several data sets, and adds kinds of negatives and questions that the sets do not have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cyclopts import Parameter

from cerberank_models.calibration import folded
from cerberank_models.commands.values import Share, Whole
from cerberank_models.encoding import Candidate
from cerberank_training.data.chat_form import chat_form
from cerberank_training.data.distractors import changed, without_answer
from cerberank_training.data.question_table import QuestionTable
from cerberank_training.data.sampling import Group, PairSampler, Sampler


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Additions:
    """The changes of drawn groups, which are from no paper: options of `data sample`."""

    temperature: Share = 1.0
    """Exponent T of the weight size**T by which sets are mixed: with 1 every question is drawn equally often, with 0
    every set."""
    elsewhere: Whole = 0
    """Number of negatives of a group to add from other sets, or with one set from its other questions."""
    # In three of four cases cerberank-mini 2.1.0 prefers a text that repeats the question (docs/measurements.md).
    questions_as_candidates: Share = 0.0
    """Share of the groups that get another question of the set as a negative."""
    changed: Share = 0.0
    """Share of the groups that get a wrong copy of their positive as a negative: with another number or name, or with a
    `not`."""
    removed: Share = 0.0
    """Share of the groups that get their positive without its short answer as a negative. Only the formats `squad-as2`
    and `squad-as2-article` have short answers, and single pairs have none."""
    chat: Share = 0.0
    """Share of the questions that are written as in a chat: greeting, politeness, small letters, typing errors."""
    without_positive: Share = 0.0
    """Share of the groups whose positive is removed; above 0, questions without a positive are kept too."""


class Mixture:
    """Draws groups from several sets. Each set has its own order, and everything depends only on the seed."""

    def __init__(
        self,
        samplers: Mapping[str, Sampler | PairSampler],
        tables: Mapping[str, QuestionTable],
        additions: Additions,
        *,
        seed: int,
    ) -> None:
        """`samplers` and `tables` are given for each set, by `FORMAT:PATH`."""
        self._samplers = samplers
        self._tables = tables
        self._additions = additions
        self._seed = seed

    def groups(self, count: int) -> Iterator[tuple[str, Group]]:
        """The first `count` groups, each with the name of its set."""
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
        # A share of 0 draws no random number, so that commands of earlier versions give the same groups.
        if additions.questions_as_candidates and rng.random() < additions.questions_as_candidates:
            other = self._tables[name][rng.randrange(len(self._tables[name]))].text
            negatives += [Candidate(text=other)] if folded(other) != folded(group.question) else []
        if positives and additions.removed and rng.random() < additions.removed:
            rest = without_answer(positives[0], group.answers)
            negatives += [rest] if rest is not None else []
        taken = {folded(candidate.text) for candidate in group.candidates}
        negatives += [text for text in self._elsewhere(name, rng) if folded(text.text) not in taken]
        if negatives and rng.random() < additions.without_positive:
            positives = []
        question = chat_form(group.question, rng) if rng.random() < additions.chat else group.question
        return replace(
            group,
            question=question,
            candidates=(*positives, *negatives),
            labels=(*(1.0 for _ in positives), *(0.0 for _ in negatives)),
        )

    def _elsewhere(self, name: str, rng: random.Random) -> Sequence[Candidate]:
        """Candidates of random questions from other sets."""
        others = [table for other, table in self._tables.items() if other != name] or [self._tables[name]]
        drawn = []
        for _ in range(self._additions.elsewhere):
            table = rng.choice(others)
            question = rng.randrange(len(table))
            _, row = table.pair(question, rng.randrange(int(table.sizes[question])))
            drawn.append(row.candidate)
        return drawn
