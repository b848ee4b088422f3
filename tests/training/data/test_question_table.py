"""Questions in an Arrow table: the same ones, in memory and on disk, without a list of them."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cerberank_training.data
from cerberank_models.encoding import Candidate
from cerberank_training.data import DataError, LabelledCandidate, Question, arrow_files, open_questions
from cerberank_training.data.question_table import QuestionTable, stored_table
from cerberank_training.data.sampling import ExampleOptions, PairSampler

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
CANDIDATES = st.builds(
    LabelledCandidate,
    st.builds(Candidate, text=TEXT, previous=TEXT, next=TEXT),
    st.integers(0, 4),
    st.none() | st.floats(-9, 9),
)
QUESTIONS = st.builds(
    Question,
    id=TEXT,
    text=TEXT,
    candidates=st.lists(CANDIDATES, min_size=1, max_size=4).map(tuple),
    title=TEXT,
    paragraph=st.none() | st.integers(0, 9),
    answers=st.lists(TEXT, max_size=2).map(tuple),
    missed=st.lists(st.integers(1, 3), max_size=2).map(tuple),
)


def asnq(path: Path, questions: int, candidates: int) -> Path:
    """A file of ASNQ's form; the labels of a question are 1, 2, 3, 4, 1 and so on."""
    with path.open("w", encoding="utf-8") as file:
        for question in range(questions):
            for row in range(candidates):
                file.write(
                    f"who is number {question} ?\tthe sentence {row} about {question} is here .\t{row % 4 + 1}\n"
                )
    return path


@given(questions=st.lists(QUESTIONS, max_size=12), batch=st.integers(1, 60))
@settings(max_examples=40)
def test_a_table_gives_the_questions_back(questions: list[Question], batch: int) -> None:
    """Whole questions, slices, sizes, positives and single pairs, however many record batches there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_files, "BATCH_CHARACTERS", batch)
        table = QuestionTable.of(iter(questions))
    assert (list(table), table[1:3], len(table)) == (questions, questions[1:3], len(questions))
    assert table.sizes.tolist() == [len(question.candidates) for question in questions]
    assert table.positives.tolist() == [sum(row.relevant for row in question.candidates) for question in questions]
    for number, question in enumerate(questions):
        rows = [table.pair(number, row) for row in range(len(question.candidates))]
        assert rows == [(question.text, row) for row in question.candidates]
    with pytest.raises(IndexError):
        table[len(questions)]


def test_a_large_file_is_stored_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal questions from disk; the second call reads no row of the source; a changed source or a torn table does."""
    monkeypatch.setattr(arrow_files, "BATCH_CHARACTERS", 100)
    source = asnq(tmp_path / "train.tsv", 7, 5)
    in_memory = list(open_questions(f"asnq:{source}"))
    assert not source.with_name("train.tsv.arrow").exists()
    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    assert list(open_questions(f"asnq:{source}")) == in_memory

    def never() -> Iterator[Question]:
        raise AssertionError("the table is there")
        yield in_memory[0]

    assert list(stored_table(source, never(), most=0)) == in_memory
    for damage in (lambda: asnq(source, 3, 5), lambda: os.truncate(source.with_name("train.tsv.arrow"), 90)):
        damage()
        assert len(open_questions(f"asnq:{source}")) == 3


def test_another_process_maps_a_stored_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has no texts, but the place of the table, whatever its size; one in memory is copied."""
    monkeypatch.setattr(arrow_files, "BATCH_CHARACTERS", 1000)
    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    source = asnq(tmp_path / "train.tsv", 7, 50)
    stored = open_questions(f"asnq:{source}")
    copy = pickle.dumps(stored)
    assert b"the sentence" not in copy
    assert list(pickle.loads(copy)) == list(stored)
    in_memory = QuestionTable.of(list(stored))
    assert list(pickle.loads(pickle.dumps(in_memory))) == list(stored)


def test_an_older_file_of_the_same_size_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table belongs to the time of each file, not to the latest: a file that is put back is another."""
    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    for name, text in (("c.tsv", "10\tten\n11\telf\n"), ("q.tsv", "7\tseven ?\n"), ("ids.tsv", "7\t10\t11\n")):
        (tmp_path / name).write_text(text)
    spec = f"msmarco:{tmp_path / 'ids.tsv'}?collection=c.tsv&queries=q.tsv"
    os.utime(tmp_path / "ids.tsv", (2_000_000_000, 2_000_000_000))
    assert open_questions(spec)[0].candidates[0].candidate.text == "ten"
    (tmp_path / "c.tsv").write_text("10\told\n11\telf\n")
    os.utime(tmp_path / "c.tsv", (1, 1))
    assert open_questions(spec)[0].candidates[0].candidate.text == "old"


def test_a_bad_row_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is named by file and line, as without a table."""
    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    source = tmp_path / "train.tsv"
    source.write_text("who ?\tsomebody\t4\nwho ?\tnobody\t5\n")
    with pytest.raises(DataError, match=r"train.tsv:2: expected"):
        open_questions(f"asnq:{source}")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["train.tsv"]


def test_a_folder_that_cannot_be_written_is_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file there is refused, not read into memory."""

    def refuse(path: Path) -> None:
        raise PermissionError(f"not allowed: {path}")

    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    monkeypatch.setattr(arrow_files, "FileLock", refuse)
    with pytest.raises(DataError, match="too large to be held in memory"):
        open_questions(f"asnq:{asnq(tmp_path / 'train.tsv', 1, 4)}")


def test_pairs_are_written_and_drawn_without_a_list_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and NumPy hold at most one batch, and less than 16 bytes a pair.

    40,000 pairs as objects are more than 200 bytes each, 8 MB. One batch here is 400 of them; 512 KB are allowed for it
    and for what does not grow with the data. 6 bytes a pair are used; SlipCover takes .6 MB (tests/allocations.py).
    """
    pairs = 40_000
    monkeypatch.setattr(cerberank_training.data, "LARGE", 1)
    monkeypatch.setattr(arrow_files, "BATCH_CHARACTERS", 15_000)
    source = asnq(tmp_path / "train.tsv", pairs // 400, 400)
    open_questions(f"asnq:{asnq(tmp_path / 'warm.tsv', 1, 4)}")  # imports are not counted
    tracemalloc.start()
    sampler = PairSampler(open_questions(f"asnq:{source}"), ExampleOptions(sampling="pairs"), seed=1)
    drawn = [group.labels for step in range(20) for group in sampler.step(step, 64)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(sampler) == pairs
    assert {label for (label,) in drawn} == {0.0, 1.0}
    assert peak < 16 * pairs + (512 << 10)
