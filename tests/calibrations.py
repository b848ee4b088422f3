"""Calibrations for tests, checkpoints with one, and questions to calibrate on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from tests.tiny import WORDS

from cerberank_models.calibration import FILE, Calibration
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.ranker import Ranker

ROW = {"precision": 0.9, "recall": 0.5, "bound": 0.8, "precision_answered": 0.95, "bound_answered": 0.9}


def curves(count: int, *, constant: float = -0.4) -> list[dict[str, dict[str, float]]]:
    """The curves of `count` stages."""
    answerable = {"score": 0.6, "rival": 0.1, "constant": -0.5}
    candidate = {"rival": 0.3, "constant": constant}
    return [{"answerable": answerable, "candidate": candidate | {"score": 0.5 + stage}} for stage in range(count)]


def calibration(**changes: Any) -> Calibration:
    """A calibration of two stages; `changes` are of its JSON."""
    known = {
        "stages": curves(2),
        "unanswered": 0.5,
        "precision": [ROW | {"wanted": 0.7, "threshold": 0.4}, ROW | {"wanted": 0.9, "threshold": 0.8}],
        "recall": [],
        "confidence": 0.9,
        "mean_score": 0.6,
        "mean_answerable": 0.5,
        "data": {
            "sets": ["a"],
            "questions": 300,
            "unanswered": 150,
            "removed": 150,
            "candidates": 900,
            "precision": "int8",
        },
    }
    return Calibration.model_validate(known | changes)


def calibrated(
    folder: Path, path: Path, *, version: str = "2", card: str | None = None, constant: float = -0.4, **changes: Any
) -> Checkpoint:
    """The checkpoint `folder` with a curve for each of its stages, as a new one."""
    source = read_checkpoint(folder)
    rows = curves(source.config.scored_stages, constant=constant)
    content = calibration(**{"stages": rows} | changes).model_dump_json().encode()
    return revise_checkpoint(source, path, version=version, card=card, files={FILE: content})


def held_out(ranker: Ranker, path: Path, count: int) -> str:
    """A file of questions as FORMAT:PATH, whose candidates are right with a probability that rises with the score."""
    rng = random.Random(5)
    questions = [f"{' '.join(rng.sample(WORDS, 4))} ?" for _ in range(count)]
    texts = [[" ".join(rng.sample(WORDS, 4)) for _ in range(5)] for _ in questions]
    raw = ranker.predict([(each, text) for each, of_one in zip(questions, texts, strict=True) for text in of_one])
    odds = np.log(raw / (1.0 - raw))
    chances = iter((1.0 / (1.0 + np.exp(-3.0 * (odds - odds.mean()) / odds.std()))).tolist())
    with path.open("w") as file:
        for number, (question, of_one) in enumerate(zip(questions, texts, strict=True)):
            rows = [{"text": text, "label": int(rng.random() < next(chances))} for text in of_one]
            file.write(json.dumps({"id": str(number), "question": question, "candidates": rows}) + "\n")
    return f"jsonl:{path}"
