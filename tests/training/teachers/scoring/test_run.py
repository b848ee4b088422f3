from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cerberank_models.checkpoint.bound import BoundError
from cerberank_models.encoding import Candidate
from cerberank_models.shards import map_here
from cerberank_training.teachers.scoring.scoring_run import WHOLE, NonFiniteTeacherError, Part, Scores, score_into
from cerberank_training.teachers.teacher_reader import Pair
from cerberank_training.teachers.teacher_score_cache import ScoreCacheError, TeacherIdentity, TeacherScoreCache

IDENTITY = TeacherIdentity(name="counter", revision="c", precision="none", max_length=8, context=False)
QUESTIONS = [(f"question {q}", [Candidate(text=f"{q} {c}") for c in range(q % 4)]) for q in range(20)]


class Counter:
    """A teacher whose score is the last number in the candidate; it records the sizes of its inputs."""

    def __init__(self, bad: str = "") -> None:
        self.sizes: list[int] = []
        self._bad = bad

    def differences(self, pairs: Sequence[Pair]) -> NDArray[np.float32]:
        self.sizes.append(len(pairs))
        return np.asarray(
            [np.nan if candidate.text == self._bad else float(candidate.text.split()[1]) for _, candidate in pairs],
            dtype=np.float32,
        )


def run(
    folder: Path,
    shard_map: Scores,
    questions: Sequence[tuple[str, list[Candidate]]] = QUESTIONS,
    *,
    part: Part = WHOLE,
    parts: Sequence[Path] = (),
    shard_pairs: int = 8,
) -> int:
    return score_into(
        folder,
        lambda: questions,
        shard_map,
        teacher=IDENTITY,
        data=["tests"],
        shard_pairs=shard_pairs,
        part=part,
        parts=parts,
    )


def check(folder: Path) -> None:
    cache = TeacherScoreCache.open(folder)
    for question, candidates in QUESTIONS:
        expected = [float(index) for index in range(len(candidates))]
        assert cache.scores(question, candidates).tolist() == expected


def test_every_pair_is_scored_in_shards_of_the_same_size(tmp_path: Path) -> None:
    """30 pairs are three shards of 8 and one of 6; questions may lie across two, or have no candidate."""
    teacher = Counter()
    run(tmp_path, map_here(teacher.differences))
    check(tmp_path)
    assert teacher.sizes == [8, 8, 8, 6]


def test_only_what_is_missing_is_scored_again(tmp_path: Path) -> None:
    """Missing shards in the middle are scored, the finished ones before them are skipped."""
    run(tmp_path, map_here(Counter().differences))
    before = {path.name: path.read_bytes() for path in tmp_path.glob("shard-*")}
    for shard in (1, 3):
        (tmp_path / f"shard-0000{shard}.parquet").unlink()
    teacher = Counter()
    run(tmp_path, map_here(teacher.differences))
    assert teacher.sizes == [8, 6]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("shard-*")} == before
    run(tmp_path, map_here(teacher.differences))
    assert teacher.sizes == [8, 6]


def test_machines_share_the_shards_and_their_caches_are_joined(tmp_path: Path) -> None:
    """Three calls score every shard once; joined, the cache is bit for bit that of one call, and nothing is scored.

    A cache of other texts, of another size of shards, or with a damaged shard is refused.
    """
    run(tmp_path / "whole", map_here(Counter().differences))
    parts, sizes = [tmp_path / str(number) for number in (1, 2, 3)], []
    for number, part in enumerate(parts, start=1):
        teacher = Counter()
        assert run(part, map_here(teacher.differences), part=(number, 3)) == 4 - len(list(part.glob("shard-*")))
        sizes.append(teacher.sizes)
    assert sizes == [[8, 6], [8], [8]]  # shards 0 and 3, 1, 2
    joined, rest = tmp_path / "joined", Counter()
    assert run(joined, map_here(rest.differences), parts=parts[:2]) == 0
    assert rest.sizes == [8]  # the shard that no given part has
    assert {path.name: path.read_bytes() for path in joined.glob("shard-*")} == {
        path.name: path.read_bytes() for path in (tmp_path / "whole").glob("shard-*")
    }
    with pytest.raises(BoundError, match="other content of texts"):
        run(tmp_path / "other", map_here(rest.differences), QUESTIONS[::-1], parts=parts)
    with pytest.raises(ScoreCacheError, match=r"has shards of 8 pairs, .*: begin with --shard-pairs 8"):
        run(tmp_path / "wide", map_here(rest.differences), parts=parts, shard_pairs=9)
    (parts[0] / "shard-00000.parquet").write_bytes(b"damaged")
    with pytest.raises(ScoreCacheError, match=r"shard-00000.parquet cannot be read"):
        run(tmp_path / "again", map_here(rest.differences), parts=parts)


def test_an_engine_may_answer_in_any_order(tmp_path: Path) -> None:
    """An engine that returns shards out of order, as a cluster does, fills the same cache."""

    def backwards(shards: Iterator[tuple[int, list[Pair]]]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        yield from reversed(list(map_here(Counter().differences)(shards)))

    run(tmp_path, backwards)
    check(tmp_path)


def test_a_score_that_is_not_a_number_names_its_pair(tmp_path: Path) -> None:
    """Nothing of that shard is written, what was finished before it stays."""
    with pytest.raises(
        NonFiniteTeacherError, match="counter gives nan to the candidate '7 2' of the question 'question 7'"
    ):
        run(tmp_path, map_here(Counter(bad="7 2").differences))
    assert [path.name for path in tmp_path.glob("shard-*")] == ["shard-00000.parquet"]
    run(tmp_path, map_here(Counter().differences))
    check(tmp_path)


def test_data_without_a_pair_are_refused(tmp_path: Path) -> None:
    """Data without pairs is an error, and no cache is created."""
    with pytest.raises(ValueError, match="tests: there is no pair"):
        run(tmp_path / "cache", map_here(Counter().differences), [("question", [])])
    assert not (tmp_path / "cache").exists()
