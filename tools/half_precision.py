"""Compares the rankings in fp16 and bf16 with those in fp32, from the real service with PyTorch.

    python -m tools.half_precision CHECKPOINT --data squad-as2:../shared/data/squad-as2/dev.jsonl.gz --questions 200

Prints a table with the questions that have the same first candidate, the largest difference of a score, and the share
of distinct scores. It runs on the CPU unless `--device` names another device.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from cerberank_training.data import Question, read_questions, sampled
from tools.process import serving

EXACT, HALVES = "fp32", ("fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a precision with fp32 on the same questions, without drops."""

    precision: str
    questions: int
    same_first: int
    """Number of questions with the same best candidate."""
    difference: float
    """The largest difference of a score."""
    distinct: float
    """Number of distinct scores, as a share of the distinct scores in fp32."""

    @property
    def agreement(self) -> float:
        """Percentage of questions with the same first candidate."""
        return 100.0 * self.same_first / self.questions


def scores_in(
    precision: str, checkpoint: Path, questions: Sequence[Question], folder: Path, **settings: str
) -> list[np.ndarray]:
    """The scores of every question's candidates, in the order of the candidates, from a service in this precision."""
    chosen = {"BACKEND": "torch", "PRECISION": precision, **settings}
    named = {f"CERBERANK_{name}": value for name, value in chosen.items()}
    with (
        serving(checkpoint, folder / f"{precision}.log", **named) as service,
        httpx.Client(base_url=service.url, timeout=300.0) as client,
    ):
        (model,) = client.get("/v1/models").json()["models"]
        if model["precision"] != precision:
            raise ValueError(f"the service computes in {model['precision']}, not in {precision}")
        return [_ask(client, question) for question in questions]


def compare(checkpoint: Path, questions: Sequence[Question], folder: Path, **settings: str) -> list[Comparison]:
    """Serve `checkpoint` in fp32, fp16 and bf16 in turn; `settings` are further settings, such as DEVICE."""
    exact = scores_in(EXACT, checkpoint, questions, folder, **settings)
    found = []
    for precision in HALVES:
        half = scores_in(precision, checkpoint, questions, folder, **settings)
        both = list(zip(exact, half, strict=True))
        found.append(
            Comparison(
                precision,
                questions=len(both),
                same_first=sum(int(a.argmax() == b.argmax()) for a, b in both),
                difference=max(float(np.abs(a - b).max()) for a, b in both),
                distinct=sum(len(np.unique(b)) for _, b in both) / sum(len(np.unique(a)) for a, _ in both),
            )
        )
    return found


def _ask(client: httpx.Client, question: Question) -> np.ndarray:
    candidates = [
        {"text": row.candidate.text, "previous": row.candidate.previous, "next": row.candidate.next}
        for row in question.candidates
    ]
    body = {"question": question.text, "candidates": candidates, "drop_ratio": 0.0}
    results = client.post("/v1/rank", json=body).raise_for_status().json()["results"]
    return np.asarray([result["score"] for result in sorted(results, key=lambda result: result["index"])])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data", metavar="FORMAT:PATH", required=True)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    questions = sampled(read_questions(arguments.data), size=arguments.questions, seed=0, name="clean")
    write = sys.stdout.write
    write("| precision | questions | same first candidate | largest difference | distinct scores |\n")
    write("|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as folder:
        for found in compare(arguments.checkpoint, questions, Path(folder), DEVICE=arguments.device):
            write(
                f"| {found.precision} | {found.questions} | {found.agreement:.1f} % | {found.difference:.4f} "
                f"| {100 * found.distinct:.1f} % |\n"
            )


if __name__ == "__main__":
    main()
