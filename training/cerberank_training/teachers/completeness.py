"""A check that score caches have all pairs that a run can draw, before the run loads its base.

A pair takes 7 microseconds of one core, most of which read and hash its texts. ASNQ's 23.7 million pairs take three
minutes, which is little compared with training on them. Memory holds only the pairs of one look-up.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from cerberank_models.encoding import Candidate
from cerberank_models.progress import progress
from cerberank_training.data.question_table import QuestionTexts
from cerberank_training.data.sampling import Sampler
from cerberank_training.teachers.pair_keys import pair_keys
from cerberank_training.teachers.teacher_score_cache import MissingScoreError, TeacherIdentity, TeacherScoreCache

CHUNK = 1 << 16
"""The least number of pairs of one look-up, for which keys are sorted: this is several times as fast."""


class Draws(Protocol):
    """The source of a run's pairs."""

    def known_pairs(self) -> Iterator[QuestionTexts]:
        """The questions with those candidates that can be drawn and are known beforehand."""


@dataclass(slots=True)
class _Lack:
    """The pairs that a cache lacks."""

    pairs: int = 0
    example: tuple[str, Candidate] | None = None


def refuse_missing_scores(caches: Mapping[Path, TeacherScoreCache], groups: Draws, *, data: str) -> None:
    """Raise MissingScoreError if a cache lacks a pair of `data` that can be drawn. `caches` are given by folder.

    Negatives from articles are not checked, because they are not known beforehand.
    """
    if not caches:
        return
    # 1. Pairs are looked up in chunks, whose keys are sorted once for all caches that read the same texts.
    lacks = {folder: _Lack() for folder in caches}
    contexts = {cache.teacher.context for cache in caches.values()}
    total = 0
    with progress(unit="pair", desc="looking for scores") as bar:
        for chunk in _chunks(groups.known_pairs()):
            total += (pairs := sum(len(candidates) for _, candidates in chunk))
            for context in contexts:
                parts = [pair_keys(question, candidates, context=context) for question, candidates in chunk]
                keys = np.concatenate(parts)
                order = np.argsort(keys)
                for folder, cache in caches.items():
                    if cache.teacher.context != context or (known := cache.knows(keys[order])).all():
                        continue
                    lack = lacks[folder]
                    lack.pairs += int((~known).sum())
                    lack.example = lack.example or _pair(chunk, int(order[~known].min()))
            bar.update(pairs)
    # 2. The message names the first cache, one of its pairs, and the command that scores them all.
    examples = {folder: lack.example for folder, lack in lacks.items() if lack.example}
    if not examples:
        return
    (first, example), *others = examples.items()
    also = "".join(f", and so does --teacher {folder} ({lacks[folder].pairs})" for folder, _ in others)
    raise MissingScoreError(
        f"--teacher {first} lacks the scores of {lacks[first].pairs} of {total} pairs of {data}{also}, such as the "
        f"candidate {example[1].text!r} of the question {example[0]!r}; "
        f"`{score_command(caches[first].teacher, scored_data(groups, data))}` makes a cache that has them all"
    )


def scored_data(groups: Draws, data: str) -> str:
    """The data with every pair that can be drawn from `data`: those of whole articles, if groups draw from articles."""
    articles = isinstance(groups, Sampler) and groups.draws_outside
    return f"squad-as2-article:{data.partition(':')[2]}" if articles else data


def score_command(teacher: TeacherIdentity, data: str) -> str:
    """The command by which this teacher scores `data` into a new folder, because a cache is bound to its texts."""
    words = ["cerberank", "data", "score", "NEW"]
    engine, _, precision = teacher.precision.partition("/")
    if engine == "given":
        form = precision.partition(" ")[0]
        words += ["--scores", "FILE", "--as", form, "--name", teacher.name]
    else:
        is_source = " " not in teacher.name or Path(teacher.name).is_dir()  # a checkpoint is called "NAME VERSION"
        words += ["--teacher", teacher.name if is_source else "CHECKPOINT"]
        words += ["--backend", engine] if engine != "torch" else []
        words += ["--precision", precision] if precision != "fp32" else []
        if is_source:
            words += ["--max-length", str(teacher.max_length), *(["--context"] if teacher.context else [])]
    return shlex.join([*words, "--data", data])


def _chunks(texts: Iterable[QuestionTexts]) -> Iterator[list[QuestionTexts]]:
    """The questions in lists of at least CHUNK pairs; the last list may have fewer."""
    chunk: list[QuestionTexts] = []
    pairs = 0
    for question in texts:
        chunk.append(question)
        pairs += len(question[1])
        if pairs >= CHUNK:
            yield chunk
            chunk, pairs = [], 0
    if chunk:
        yield chunk


def _pair(chunk: Iterable[QuestionTexts], place: int) -> tuple[str, Candidate]:
    """The pair at index `place` among all pairs of the chunk."""
    return next(
        pair
        for number, pair in enumerate((question, each) for question, candidates in chunk for each in candidates)
        if number == place
    )
