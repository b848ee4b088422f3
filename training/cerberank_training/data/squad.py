"""SQuAD turned into answer sentence selection: by paragraph, and by article.

A line of JSON is a question, whose candidates are the sentences of one paragraph. The file `articles-*.jsonl` beside it
contains whole articles. Their other sentences are negatives of the question, or hundreds of further candidates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from cerberank_models.encoding import Candidate
from cerberank_training.data.question import DataError, LabelledCandidate, Question, read_lines, with_neighbours


def read_squad(path: Path) -> list[Question]:
    """The questions with the sentences of their paragraphs."""
    questions = []
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            questions.append(
                Question(
                    id=row["qid"],
                    text=row["question"],
                    candidates=tuple(
                        LabelledCandidate(
                            Candidate(text=item["text"], previous=item["prev"] or "", next=item["next"] or ""),
                            _label(item["label"]),
                        )
                        for item in row["candidates"]
                    ),
                    title=row["title"],
                    paragraph=int(row["para"]),
                    answers=tuple(row["answers"]),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: not a squad-as2 question ({error!r})") from error
    return questions


class Articles:
    """Whole articles by title. Candidates are created once for each article, and not for each question."""

    def __init__(self, path: Path) -> None:
        """Read `articles-*.jsonl`."""
        self._paragraphs: dict[str, list[list[Candidate]]] = {}
        for number, line in read_lines(path):
            try:
                row = json.loads(line)
                self._paragraphs[row["title"]] = [with_neighbours(sentences) for sentences in row["paragraphs"]]
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: not an article ({error!r})") from error

    def outside(self, question: Question) -> Sequence[Candidate]:
        """The sentences of the question's article outside of its paragraph that do not contain a short answer.

        Sentences with a short answer are left out, because some of them answer the question but have no label.
        """
        return [
            candidate
            for index, paragraph in enumerate(self._of(question))
            if index != question.paragraph
            for candidate in paragraph
            if len(candidate.text) >= 20 and not question.holds_answer(candidate.text)
        ]

    def with_article(self, question: Question) -> Question:
        """The question with all sentences of its article. Labels are 0 outside of its own paragraph."""
        candidates: list[LabelledCandidate] = []
        for index, paragraph in enumerate(self._of(question)):
            if index != question.paragraph:
                candidates += [LabelledCandidate(candidate, 0) for candidate in paragraph]
                continue
            if [row.candidate.text for row in question.candidates] != [candidate.text for candidate in paragraph]:
                raise DataError(f"question {question.id} does not fit paragraph {index} of {question.title!r}")
            candidates += question.candidates
        return Question(
            id=question.id,
            text=question.text,
            candidates=tuple(candidates),
            title=question.title,
            paragraph=question.paragraph,
            answers=question.answers,
        )

    def _of(self, question: Question) -> list[list[Candidate]]:
        if question.title not in self._paragraphs:
            raise DataError(f"question {question.id}: there is no article {question.title!r}")
        return self._paragraphs[question.title]


def _label(value: object) -> int:
    if value not in (0, 1):
        raise ValueError("labels are 0 or 1")
    return int(value == 1)


def articles_path(path: Path) -> Path:
    """`articles-dev.jsonl.gz` for `dev.jsonl.gz`."""
    return path.with_name(f"articles-{path.name}")


def read_squad_articles(path: Path) -> Iterator[Question]:
    """Yield the questions of `path` one by one, each with all sentences of its article."""
    articles = Articles(articles_path(path))
    for question in read_squad(path):
        yield articles.with_article(question)
