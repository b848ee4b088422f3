"""The questions that choose weights: how many, and that they can choose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cerberank_training.data import DataError, open_questions
from cerberank_training.runs.run_data import check_held_out, chosen_size, data_content, dev_set, in_common, measured


def test_the_dev_questions_of_asnq_are_all_by_default(tmp_path: Path) -> None:
    """Three hundred are drawn from other formats; `all` and a number are taken from either."""
    (tmp_path / "dev.tsv").write_text("".join(f"q {n}\tyes\t4\nq {n}\tno\t1\n" for n in range(310)))
    line = '{"question": "q", "candidates": [{"text": "yes", "label": 1}, {"text": "no", "label": 0}]}\n'
    (tmp_path / "dev.jsonl").write_text(line * 310)
    asnq, other = f"asnq:{tmp_path / 'dev.tsv'}", f"jsonl:{tmp_path / 'dev.jsonl'}"
    sizes = [len(dev_set(spec, chosen_size(spec, size))) for spec in (asnq, other) for size in (None, "all", 20)]
    assert sizes == [310, 310, 20, 300, 310, 20]


def test_asnqs_released_dev_set_is_refused_without_the_list(tmp_path: Path) -> None:
    """Its 2,672 questions are dev and test; half of them, by the list, are taken."""
    (tmp_path / "dev.tsv").write_text("".join(f"q {n}\tyes\t4\nq {n}\tno\t1\n" for n in range(2672)))
    (tmp_path / "unique.dev").write_text("".join(f"q {n}\n" for n in range(0, 2672, 2)))
    with pytest.raises(DataError, match="name the dev list"):
        dev_set(f"asnq:{tmp_path / 'dev.tsv'}", "all")
    assert len(dev_set(f"asnq:{tmp_path / 'dev.tsv'}?questions=unique.dev", "all")) == 1336


def written(folder: Path, *labels: tuple[int, ...]) -> str:
    rows = [{"question": "q", "candidates": [{"text": "a", "label": label} for label in each]} for each in labels]
    (folder / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"jsonl:{folder / 'dev.jsonl'}"


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "holds no question"),
        ([(0, 0), (0,)], "all 2 questions are without a positive candidate: MAP is undefined"),
        ([(1, 1), (0,)], "all 2 questions are without a negative candidate beside a positive one.*run=bm25"),
    ],
)
def test_a_set_that_cannot_choose_is_refused(labels: list[tuple[int, ...]], message: str, tmp_path: Path) -> None:
    """With the file's name."""
    with pytest.raises(DataError, match=f"dev.jsonl.*{message}"):
        dev_set(written(tmp_path, *labels), "all")


def test_a_sample_that_cannot_choose_is_told_from_the_whole(tmp_path: Path) -> None:
    """One question of fifty can be answered, and is not drawn."""
    spec = written(tmp_path, *[(0, 0)] * 49, (1, 0))
    assert measured(dev_set(spec, "all")) == 1
    with pytest.raises(DataError, match="all 1 questions that were drawn of 50 are without a positive"):
        dev_set(spec, 1)


def test_what_is_trained_on_chooses_nothing(tmp_path: Path) -> None:
    """The same content is refused under any name; another part of the same file is not, and questions in common are
    counted by their texts, whatever case and blanks.
    """
    dev = written(tmp_path, (1, 0), (1, 1))
    (tmp_path / "train.jsonl").write_bytes((tmp_path / "dev.jsonl").read_bytes())
    train = f"jsonl:{tmp_path / 'train.jsonl'}"
    with pytest.raises(DataError, match=r"^--dev jsonl:.*dev.jsonl has the same content as jsonl:.*train.jsonl: "):
        check_held_out(dev, data_content(dev), train=train, train_content=data_content(train))
    check_held_out(dev, data_content(dev), train=train, train_content=data_content(train) | {"options": "part=1"})
    questions = open_questions(dev)
    assert in_common(questions, ["other", "  Q "]).startswith("2 of 2 questions of --dev are trained on too")
    assert in_common(questions, ["other"]) == ""
    assert list(questions.question_texts()) == ["q", "q"]
