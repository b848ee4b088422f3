"""Five questions that a tiny network can learn: the right candidate repeats the question's letter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.tiny import ENCODING, bert_tokenizer

from cerberank_models.config import EncodingConfig
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.data.sampling import ExampleOptions, Sampler
from cerberank_training.teachers.pair_keys import data_digest, pair_keys
from cerberank_training.teachers.teacher_score_cache import CacheManifest, ScoreCacheWriter, TeacherIdentity


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
    return Sampler(questions(), ExampleOptions(negatives=own, hard_negatives=0, other_negatives=0), seed=1)


def encoder(config: EncodingConfig = ENCODING) -> PairEncoder:
    return PairEncoder(bert_tokenizer(), family="bert", config=config, type_vocab_size=2)


def jsonl(folder: Path) -> str:
    """The questions as generic JSONL in `folder`, named as the verbs want it."""
    return _written(folder / "data.jsonl", questions())


def dev_jsonl(folder: Path) -> str:
    """The same questions in the opposite order: data of other content to choose weights by."""
    return _written(folder / "dev.jsonl", questions()[::-1])


def teacher_scores(folder: Path) -> Path:
    """A teacher's cache that knows the right candidates."""
    rows = [(question, [row.candidate for row in question.candidates]) for question in questions()]
    keys = np.concatenate([pair_keys(question.text, candidates, context=False) for question, candidates in rows])
    values = np.asarray([4.0 if row.relevant else -4.0 for question, _ in rows for row in question.candidates])
    teacher = TeacherIdentity(name="t", revision="a" * 64, precision="torch/fp32", max_length=32, context=False)
    manifest = CacheManifest(
        teacher=teacher, data=("letters",), data_sha256=data_digest(keys), pairs=len(keys), shard_pairs=len(keys)
    )
    with ScoreCacheWriter(folder, manifest) as writer:
        writer.write(0, keys, values.astype(np.float32))
    return folder


def _written(path: Path, written: list[Question]) -> str:
    rows = [
        {"question": q.text, "candidates": [{"text": c.candidate.text, "label": c.label} for c in q.candidates]}
        for q in written
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"jsonl:{path}"
