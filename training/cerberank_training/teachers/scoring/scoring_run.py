"""Scores a data set into a cache: it plans the shards, and scores and writes those that are missing.

A shard is always scored as a whole, so that a resumed run writes the same bits as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cerberank_models.encoding import Candidate
from cerberank_models.progress import progress
from cerberank_models.shards import ShardMap
from cerberank_training.teachers.pair_keys import Keys, data_digest, pair_keys
from cerberank_training.teachers.teacher_reader import Pair
from cerberank_training.teachers.teacher_score_cache import CacheManifest, ScoreCacheWriter, TeacherIdentity

Texts = Callable[[], Iterable[tuple[str, Sequence[Candidate]]]]
"""Reads the questions with their candidates; called more than once, and must return the same each time."""


class NonFiniteTeacherError(ArithmeticError):
    """The teacher gave the score NaN or infinity; the message names the pair."""


Scores = ShardMap[list[Pair], NDArray[np.float32]]
Part = tuple[int, int]
"""Call i of n calls that share the shards, counted from 1. Call s mod n + 1 scores shard s."""
WHOLE: Part = (1, 1)


def score_into(
    folder: Path,
    texts: Texts,
    shard_map: Scores,
    *,
    teacher: TeacherIdentity,
    data: Sequence[str],
    shard_pairs: int = 8192,
    part: Part = WHOLE,
    parts: Sequence[Path] = (),
) -> int:
    """Fill the cache `folder` with the scores of all pairs of `texts`; `data` names their sources for people.

    Shards that exist are not scored again, and an existing cache keeps its shard size. Shards of the caches `parts`
    are copied. Of the other shards this call scores its `part`. Returns the number of shards that are still missing.

    Raises BoundError when the folder, or one of `parts`, belongs to another teacher or other texts, ValueError when
    there is no pair, and NonFiniteTeacherError when a score is NaN or infinite; finished shards are kept.
    """
    # 1. All texts are read once for their keys, which identify them.
    keys = _keys(texts, context=teacher.context)
    if not len(keys):
        raise ValueError(f"{', '.join(data)}: there is no pair to score")
    manifest = CacheManifest(
        teacher=teacher,
        data=tuple(data),
        data_sha256=data_digest(keys),
        pairs=len(keys),
        shard_pairs=shard_pairs,
    )
    # 2. What is scored already, here or in other folders, is not scored again.
    with ScoreCacheWriter(folder, manifest) as writer:
        for other in parts:
            writer.take_over(other)
        number, count = part
        manifest = writer.manifest
        pending = [shard for shard in writer.pending() if shard % count == number - 1]
        waiting = sum(len(keys[manifest.rows(shard)]) for shard in pending)
        # 3. The rest of this call's part. A shard is written whole or not at all.
        with progress(
            total=len(keys),
            initial=len(keys) - waiting,
            unit="pair",
            desc=folder.name,
        ) as bar:
            for index, scores in shard_map(_shards(texts, manifest, set(pending))) if pending else ():
                rows = manifest.rows(index)
                if not np.isfinite(scores).all():
                    row = rows.start + int(np.argmin(np.isfinite(scores)))
                    question, candidate = next(islice(_pairs(texts), row, None))
                    raise NonFiniteTeacherError(
                        f"{teacher.name} gives {scores[row - rows.start]} to the candidate {candidate.text!r} "
                        f"of the question {question!r}"
                    )
                writer.write(index, keys[rows], scores)
                bar.update(len(scores))
        return len(writer.pending())


def _keys(texts: Texts, *, context: bool) -> Keys:
    """The keys of all pairs, in order. Memory holds 8 bytes a pair and no texts."""
    parts = [np.empty(0, dtype=np.uint64)]
    with progress(unit="pair", desc="reading") as bar:
        for question, candidates in texts():
            parts.append(pair_keys(question, candidates, context=context))
            bar.update(len(candidates))
    return np.concatenate(parts)


def _pairs(texts: Texts) -> Iterator[Pair]:
    for question, candidates in texts():
        for candidate in candidates:
            yield question, candidate


def _shards(texts: Texts, manifest: CacheManifest, wanted: set[int]) -> Iterator[tuple[int, list[Pair]]]:
    pairs = _pairs(texts)
    for index in range(max(wanted) + 1):
        rows = manifest.rows(index)
        chunk = islice(pairs, rows.stop - rows.start)
        if index in wanted:
            yield index, list(chunk)
        else:
            for _ in chunk:
                pass
