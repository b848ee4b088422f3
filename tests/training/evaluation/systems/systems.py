"""Per-question files of systems that see the labels through noise, written where a test asks."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from cerberank_models.encoding import Candidate
from cerberank_training.data import LabelledCandidate, Question
from cerberank_training.evaluation.per_question import record, write_record
from cerberank_training.evaluation.question_metrics import question_metrics, ranks_of


def write_system(folder: Path, noise: float, sets: dict[str, int], *, seed: int = 1) -> Path:
    """A file for each set, which has so many questions of six candidates; every system gets the same questions."""
    folder.mkdir(parents=True, exist_ok=True)
    noises = random.Random(seed)
    for name, count in sets.items():
        texts = random.Random(name)
        with (folder / f"{name}.jsonl").open("wb") as file:
            for number in range(count):
                labels = [2, 0, *(texts.randint(0, 2) for _ in range(4))]
                rows = tuple(LabelledCandidate(Candidate(text=f"{n}"), label) for n, label in enumerate(labels))
                question = Question(id=str(number), text=name, candidates=rows)
                scores = np.asarray([label + noises.gauss(0, noise) for label in labels])
                ranks = {"final": ranks_of(scores)}
                metrics = {"final": question_metrics(np.asarray(labels), ranks["final"])}
                write_record(file, record(question, metrics=metrics, ranks=ranks, scores={"final": scores}))
    return folder
