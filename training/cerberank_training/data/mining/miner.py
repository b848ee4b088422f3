"""The negatives of questions: the results of a search without texts that are, or look, relevant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.stage_contract import probability
from cerberank_models.calibration import folded
from cerberank_models.encoding import Candidate
from cerberank_models.request import is_blank
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.data.mining.search import Hits, Search
from cerberank_training.data.mining.select import Selection


def positive_texts(question: Question) -> list[str]:
    """The texts of the relevant candidates; empty texts are left out."""
    return [row.candidate.text for row in _positives(question)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Miner:
    """Finds the negatives of questions."""

    corpus: Sequence[str]
    """The distinct texts that are searched, including every positive."""
    numbers: Mapping[str, int]
    """The index of each text in the corpus."""
    search: Search
    selection: Selection
    score: Callable[[list[tuple[str, Candidate]]], NDArray[np.float32]] | None
    """The log-odds of pairs by a cross-encoder, which finds texts that look relevant; None without one."""

    def mined(self, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
        """A record for each question, with its lines of the file and the numbers of texts that were left out."""
        known = [[self.numbers[text] for text in positive_texts(question)] for question in questions]
        most = self.selection.top + max(len(question.candidates) for question in questions)
        hits = list(self.search([question.text for question in questions], known, most))
        texts = [self._candidates(question, each) for question, each in zip(questions, hits, strict=True)]
        log_odds = self._filtered(questions, [[self.corpus[row] for row in rows] for rows, _ in texts])
        for question, each, (rows, scores), filtered in zip(questions, hits, texts, log_odds, strict=True):
            yield self._record(question, rows, scores, each, filtered)

    def _candidates(self, question: Question, hits: Hits) -> tuple[list[int], list[float]]:
        """The indices and scores of texts that may be negatives, from `skip` up to `top` in the order of the search."""
        relevant = set(map(folded, positive_texts(question)))
        pairs = [
            (number, score)
            for number, score in zip(hits.numbers, hits.scores.tolist(), strict=True)
            if folded(self.corpus[number]) not in relevant and not question.holds_answer(self.corpus[number])
        ]
        best = pairs[self.selection.skip : self.selection.top]
        return [number for number, _ in best], [score for _, score in best]

    def _filtered(self, questions: Sequence[Question], texts: Sequence[Sequence[str]]) -> Iterator[Any]:
        """The cross-encoder's log-odds of each question's positives and texts; None without a cross-encoder."""
        if self.score is None:
            yield from [None] * len(questions)
            return
        pairs = [
            (question.text, Candidate(text=text))
            for question, negatives in zip(questions, texts, strict=True)
            for text in [*positive_texts(question), *negatives]
        ]
        scores = self.score(pairs)
        if not np.isfinite(scores).all():
            raise ValueError(f"the cross-encoder gave a score that is not a number in a chunk from {questions[0].id!r}")
        sizes = [
            len(positive_texts(question)) + len(negatives) for question, negatives in zip(questions, texts, strict=True)
        ]
        yield from np.split(scores, np.cumsum(sizes)[:-1])

    def _record(
        self, question: Question, rows: list[int], scores: list[float], hits: Hits, filtered: Any
    ) -> dict[str, Any]:
        positives = list(_positives(question))
        if filtered is None:
            chosen, above = self.selection(scores, hits.known, question.id)
        else:
            likely = probability(filtered.astype(np.float64))
            chosen, above = self.selection(likely[len(positives) :], likely[: len(positives)], question.id)
        if not chosen:
            return {"line": None, "above": above}
        candidates: list[dict[str, Any]] = [
            {"text": row.candidate.text, "label": row.label}
            | {name: text for name in ("previous", "next") if (text := getattr(row.candidate, name))}
            for row in positives
        ]
        candidates += [{"text": self.corpus[rows[row]], "label": 0} for row in chosen]
        if filtered is not None:
            order = [*range(len(positives)), *(len(positives) + row for row in chosen)]
            for candidate, row in zip(candidates, order, strict=True):
                candidate["score"] = round(float(filtered[row]), 6)
        return {"line": {"id": question.id, "question": question.text, "candidates": candidates}, "above": above}


def _positives(question: Question) -> Iterator[LabelledCandidate]:
    return (row for row in question.candidates if row.relevant and not is_blank(row.candidate.text))
