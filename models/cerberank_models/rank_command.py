"""`cerberank rank`: what the service does, offline, from a file or standard input.

Lines of JSON `{"question": ..., "candidates": [text | {"text", "previous"?, "next"?, "id"?}]}` become lines in
the shape of a `/v1/rank` answer. With `--question` the input is one candidate a line and the output is for reading.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from tqdm import tqdm

from cerberank_models.backend import Backend
from cerberank_models.backends import open_backend
from cerberank_models.bundled import default_checkpoint
from cerberank_models.checkpoint import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.config import Frozen
from cerberank_models.encoding import Candidate, PairEncoder
from cerberank_models.rank import NonFiniteScoreError, check_schedule, rank_pairs


class CandidateLine(Frozen):
    """A candidate with context and an id of the caller's."""

    id: str | None = None
    text: str
    previous: str = ""
    next: str = ""


class QuestionLine(Frozen):
    """One line of input."""

    id: str | None = None
    question: str = Field(min_length=1)
    candidates: tuple[str | CandidateLine, ...] = Field(min_length=1)


def main(argv: list[str]) -> int:
    """Run the verb; returns 1 when a line or the checkpoint could not be used."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except (CheckpointError, ValueError, RuntimeError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader (head, less) has what it wants; Python must not flush into the closed pipe again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        sys.stderr.write(f"cerberank rank: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank rank", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default="-", help="input file; - is standard input (default)")
    parser.add_argument("--question", help="rank the input's lines for this question")
    parser.add_argument("--checkpoint", type=Path, help="folder (default: CERBERANK_CHECKPOINT, else the bundled one)")
    parser.add_argument("--top-k", type=int, help="results per question (default: all)")
    parser.add_argument("--drop-ratio", type=_ratios, help="one number for every exit, or one per exit: 0.3,0.3")
    parser.add_argument("--backend", choices=("onnx", "torch"), default="onnx")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--return-text", action="store_true")
    parser.add_argument("--return-heads", action="store_true")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar, even on a terminal")
    return parser


def _ratios(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _run(arguments: argparse.Namespace) -> int:
    if arguments.top_k is not None and arguments.top_k < 1:
        raise ValueError("--top-k must be at least 1")
    checkpoint = read_checkpoint(arguments.checkpoint or default_checkpoint())
    backend = open_backend(checkpoint, kind=arguments.backend, precision=arguments.precision, threads=arguments.threads)
    ranker = _Ranker(checkpoint, checkpoint.encoder(), backend, arguments)
    with sys.stdin if arguments.file == "-" else Path(arguments.file).open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    if arguments.question is not None:
        candidates = tuple(line for line in lines if line.strip())
        answer = ranker.rank(QuestionLine(question=arguments.question, candidates=candidates))
        for result in answer["results"]:
            sys.stdout.write(f"{result['score']:.4f}  {candidates[result['index']]}\n")
        return 0
    return _rank_lines(ranker, lines, arguments)


def _rank_lines(ranker: _Ranker, lines: list[str], arguments: argparse.Namespace) -> int:
    """Every good line is answered; bad ones are named on standard error and make the exit code 1."""
    failed = 0
    for number, line in _progress(enumerate(lines, start=1), len(lines), arguments.no_progress):
        if not line.strip():
            continue
        try:
            answer = ranker.rank(QuestionLine.model_validate_json(line))
        except ValidationError as error:
            problem = error.errors()[0]
            place = ".".join(str(part) for part in problem["loc"]) or "line"
            sys.stderr.write(f"{arguments.file}:{number}: {place}: {problem['msg']}\n")
            failed += 1
        except NonFiniteScoreError as error:
            sys.stderr.write(f"{arguments.file}:{number}: {error}\n")
            failed += 1
        else:
            sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
    sys.stdout.flush()
    return 1 if failed else 0


def _progress(items: Iterable[tuple[int, str]], total: int, off: bool) -> Iterator[tuple[int, str]]:
    """A bar on standard error, when that is a terminal and the work takes longer than a second."""
    yield from tqdm(items, total=total, unit="question", disable=True if off else None, delay=1.0)


class _Ranker:
    """A backend with the options of one call of the program."""

    def __init__(
        self, checkpoint: Checkpoint, encoder: PairEncoder, backend: Backend[Any], arguments: argparse.Namespace
    ) -> None:
        self._checkpoint, self._encoder, self._backend, self._arguments = checkpoint, encoder, backend, arguments
        ratios = arguments.drop_ratio
        if ratios is not None and len(ratios) == 1:
            ratios = ratios * (len(checkpoint.config.stages) - 1)
        self._schedule = check_schedule(ratios, backend)

    def rank(self, line: QuestionLine) -> dict[str, Any]:
        """The answer in the shape of `/v1/rank`, without times."""
        candidates = [
            Candidate(text=item)
            if isinstance(item, str)
            else Candidate(text=item.text, previous=item.previous, next=item.next)
            for item in line.candidates
        ]
        pairs = self._encoder.encode(line.question, candidates)
        top_k = self._arguments.top_k
        ranking = rank_pairs(self._backend, pairs, schedule=self._schedule, minimum=min(top_k or 1, len(candidates)))
        results = []
        for index in ranking.order[:top_k].tolist():
            item = line.candidates[index]
            result: dict[str, Any] = {
                "index": index,
                "score": float(ranking.scores[index]),
                "stage": int(ranking.stages[index]),
                "truncated": bool(pairs.truncated[index]),
            }
            if not isinstance(item, str) and item.id is not None:
                result["id"] = item.id
            if self._arguments.return_heads and ranking.head_scores is not None:
                heads = ranking.head_scores[index]
                result["heads"] = None if heads[0] != heads[0] else heads.tolist()  # NaN: no head saw it
            if self._arguments.return_text:
                result["text"] = item if isinstance(item, str) else item.text
            results.append(result)
        answer: dict[str, Any] = {} if line.id is None else {"id": line.id}
        return answer | {
            "model": self._checkpoint.config.name,
            "version": self._checkpoint.manifest.version,
            "drop_schedule": list(self._schedule),
            "results": results,
            "usage": {"candidates": len(candidates), "tokens": pairs.tokens},
        }
