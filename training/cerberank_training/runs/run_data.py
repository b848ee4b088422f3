"""The data of a run: identified by SHA-256, and checked before anything is trained.

A run can be continued with moved data, but not with changed data. Data are those that are trained on, and the
questions that choose the weights.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cerberank_models.calibration import folded
from cerberank_models.checkpoint.bound import SHA256, SHORT
from cerberank_models.checkpoint.regular import file_digest
from cerberank_training.data import DataError, Question, check_named, data_files, open_questions
from cerberank_training.data.asnq import RELEASED
from cerberank_training.data.question_table import QuestionTable

DRAWN = 300
"""The default number of questions that are drawn."""
MAP = "map"
"""The metric that chooses weights by default."""
Size = int | Literal["all"]
Content = dict[str, Any]
"""The identity of data, of a model or of a folder: the SHA-256 of every file, and what else determines what is read."""


def chosen_size(spec: str, size: Size | None) -> Size:
    """The number of questions of `FORMAT:PATH` to use. The default is all of asnq (as CERBERUS and CT), and else 300.

    Raises ValueError for a number below 1.
    """
    if size is None:
        return "all" if spec.startswith("asnq:") else DRAWN
    if size != "all" and size < 1:
        raise ValueError(f"--dev-questions is {size}; it must be at least 1, or all")
    return size


def figure_name(metric: str) -> str:
    """The name of a metric on dev in logs, trackers and model cards. MLflow's names have no `@`.

    >>> figure_name("map"), figure_name("ndcg@10")
    ('dev_map', 'dev_ndcg_at_10')
    """
    return f"dev_{metric.replace('@', '_at_')}"


def selected(metric: str) -> dict[str, str]:
    """The metric that chooses the weights, for the record; empty for MAP, which records of earlier versions mean.

    >>> selected("map"), selected("p@1")
    ({}, {'select': 'p@1'})
    """
    return {} if metric == MAP else {"select": metric}


def dev_set(spec: str, size: Size) -> Sequence[Question]:
    """The questions of `FORMAT:PATH`, all, or `size` of them drawn with seed 0.

    Raises DataError when there are no questions, when every ranking of them would have the same MAP, and for the whole
    of ASNQ's released dev.tsv, because half of it is the papers' test set.
    """
    questions = open_questions(spec)
    if spec.startswith("asnq:") and len(questions) == RELEASED:
        raise DataError(
            f"--dev {spec} has the {RELEASED:,} questions of ASNQ's released dev.tsv, which are the papers' dev and "
            "test questions together: name the dev list, as in asnq:dev.tsv?questions=unique.dev"
        )
    chosen = questions if size == "all" else random.Random(0).sample(questions, min(size, len(questions)))
    check_choice(chosen, questions, f"--dev {spec}")
    return chosen


def check_choice(chosen: Sequence[Question], questions: Sequence[Question], where: str) -> None:
    """Raise DataError when the MAP of `chosen`, which were drawn from `questions`, cannot tell models apart."""
    if not len(chosen):
        raise DataError(f"{where} holds no question: there is nothing to choose by")
    if not any(question.answerable for question in chosen):
        raise DataError(f"{where}: {_all(chosen, questions)} without a positive candidate: MAP is undefined")
    if not any(any(question.labels) and not all(question.labels) for question in chosen):
        raise DataError(
            f"{where}: {_all(chosen, questions)} without a negative candidate beside a positive one, so that every "
            "ranking has the same MAP; `run=bm25` of beir and trec data gives each question the best 100 documents"
        )


def check_held_out(dev: str, content: Content, *, train: str, train_content: Content) -> None:
    """Raise DataError when `dev` has the same content as the training data, even if the names of files differ."""
    same_files = sorted(content[SHA256].values()) == sorted(train_content[SHA256].values())
    if same_files and content["options"] == train_content["options"]:
        raise DataError(f"--dev {dev} has the same content as {train}: what is trained on says nothing of new data")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankingData:
    """The questions that a run is trained on, and those that choose its weights."""

    questions: QuestionTable
    dev: Sequence[Question]
    bound: Mapping[str, Content]
    """The content of both that the record binds, as `data` and `dev`."""

    @property
    def shared(self) -> str:
        """A line on dev questions that are trained on; empty if there are none."""
        return in_common(self.dev, self.questions.question_texts())


def check_ranking_data(train: str, dev: str, dev_questions: Size | None) -> None:
    """Raise what is wrong with the names of data and the number of dev questions; nothing is read."""
    chosen_size(dev, dev_questions)
    check_named(train)
    check_named(dev)


def open_ranking_data(train: str, dev: str, dev_questions: Size | None, *, select: str) -> RankingData:
    """Open the data `FORMAT:PATH` to train on and to choose by. Raises DataError if they are the same."""
    size = chosen_size(dev, dev_questions)
    chosen, questions = dev_set(dev, size), open_questions(train, training=True)
    content, dev_content = data_content(train, questions), data_content(dev, chosen)
    check_held_out(dev, dev_content, train=train, train_content=content)
    bound = {"data": content, "dev": {"size": size} | selected(select) | dev_content}
    return RankingData(questions=questions, dev=chosen, bound=bound)


def in_common(dev: Sequence[Question], texts: Iterable[str]) -> str:
    """A line that says how many questions of `dev` are also among the training `texts`; empty if there are none.

    >>> asked = Question(id="1", text="Who wrote it?", candidates=(), missed=(1,))
    >>> in_common([asked], ["who  wrote it?"])
    '1 of 1 questions of --dev is trained on too: dev figures are higher than those of new questions'
    """
    wanted = {folded(question.text) for question in dev}
    seen = wanted.intersection(map(folded, texts))
    count = sum(folded(question.text) in seen for question in dev)
    if not count:
        return ""
    verb = "is" if count == 1 else "are"
    return (
        f"{count} of {len(dev)} questions of --dev {verb} trained on too: dev figures are higher than those of new "
        "questions"
    )


def _all(chosen: Sequence[Question], questions: Sequence[Question]) -> str:
    drawn = "" if len(chosen) == len(questions) else f" that were drawn of {len(questions)}"
    return f"all {len(chosen)} questions{drawn} are"


def measured(questions: Sequence[Question]) -> int:
    """The number of questions for which MAP is defined."""
    return sum(question.answerable for question in questions)


def data_content(spec: str, questions: Iterable[Question] = ()) -> Content:
    """The identity of the data `FORMAT:PATH` or `FORMAT:PATH?key=value&...`.

    The identity is the format, the options, and the SHA-256 of all files that are read, including files that options
    name. If the data are not files, `questions` identify them. Raises DataError when a file cannot be read.
    """
    form, _, rest = spec.partition(":")
    place, _, options = rest.partition("?")
    try:
        digests = {name: file_digest(file) for name, file in data_files(spec).items()} or {
            "questions": _questions(questions)
        }
    except OSError as error:
        raise DataError(f"{error.filename or place}: {error.strerror or error}") from error
    return {"form": form, "options": options, SHA256: digests}


def folder_content(folder: Path) -> Content:
    """The identity of a folder of files, such as a text ranker's; empty if there is no such folder."""
    files = sorted(each for each in folder.glob("*") if each.is_file())
    return {SHA256: {each.name: file_digest(each) for each in files}}


def short_digest(digests: Mapping[str, str]) -> str:
    """The first characters of the only digest, or of a digest over several. Names of files have no influence."""
    values: Sequence[str] = sorted(digests.values())
    joined = values[0] if len(values) == 1 else hashlib.sha256("".join(values).encode()).hexdigest()
    return joined[:SHORT]


def _questions(questions: Iterable[Question]) -> str:
    digest = hashlib.sha256()
    for question in questions:
        digest.update(repr(question).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
