"""Five questions that a tiny network can learn: the right candidate repeats the question's letter."""

from __future__ import annotations

import json
from pathlib import Path

from tests.tiny import ENCODING, bert_tokenizer

from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.data.sampling import NegativeSampling, Sampler


def questions(count: int = 5) -> list[Question]:
    letters = "abcde"
    return [
        Question(
            id=letter,
            text=f"what is {letter} ?",
            candidates=(
                LabelledCandidate(Candidate(text=f"{letter} is a city"), 1),
                *(LabelledCandidate(Candidate(text=f"{other} is a city"), 0) for other in letters if other != letter),
            ),
        )
        for letter in letters[:count]
    ]


def sampler(own: int = 2) -> Sampler:
    return Sampler(questions(), NegativeSampling(own=own, hard=0, random=0), seed=1)


def encoder() -> PairEncoder:
    return PairEncoder(bert_tokenizer(), family="bert", config=ENCODING, type_vocab_size=2)


def jsonl(folder: Path) -> str:
    """The questions as generic JSONL in `folder`, named as the verbs want it."""
    return _written(folder / "data.jsonl", questions())


def dev_jsonl(folder: Path) -> str:
    """The same questions in the opposite order: data of other content to choose weights by."""
    return _written(folder / "dev.jsonl", questions()[::-1])


def _written(path: Path, written: list[Question]) -> str:
    rows = [
        {"question": q.text, "candidates": [{"text": c.candidate.text, "label": c.label} for c in q.candidates]}
        for q in written
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"jsonl:{path}"
