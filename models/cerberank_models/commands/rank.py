"""`cerberank rank`: ranks offline what the service ranks, from a file or standard input.

Lines of JSON `{"question": ..., "candidates": [text | {"text", "previous"?, "next"?, "id"?}]}` become lines in
the shape of a `/v1/rank` answer, each written as soon as it is known. With `--question` the input is one candidate
a line and the output is for reading. Exit code 1 means that a line could not be used; the others were answered.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.registry import open_backend
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.commands.backend_options import (
    add_backend_options,
    add_windows_option,
    backend_options,
    windowing_option,
)
from cerberank_models.commands.question_lines import QuestionLine, read_line
from cerberank_models.commands.ratios import one_or_all, ratios
from cerberank_models.encoding import Candidate
from cerberank_models.first_stage.rank import FirstStage, open_offline, rank_texts
from cerberank_models.rank import NonFiniteScoreError, Ranking, rank_pairs
from cerberank_models.windows import NO_SPAN


def main(argv: list[str]) -> int:
    """Run the verb; returns 1 when a line or the checkpoint could not be used."""
    arguments = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # JSON is UTF-8, whatever the terminal's locale
    try:
        return _run(arguments)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; Python must not flush into it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, RuntimeError, ArithmeticError, OSError) as error:
        sys.stderr.write(f"cerberank rank: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank rank", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", default="-", help="input file; - is standard input (default)")
    parser.add_argument("--question", help="rank the input's lines for this question")
    parser.add_argument("--checkpoint", type=Path, help="folder (default: CERBERANK_CHECKPOINT, else the bundled one)")
    parser.add_argument("--top-k", type=_count, help="results per question (default: all)")
    add_windows_option(parser)
    parser.add_argument("--drop-ratio", type=ratios, help="one number for every exit, or one per exit: 0.3,0.3")
    add_backend_options(parser)
    parser.add_argument("--threads", type=_count, help="threads of the model (default: all usable processors)")
    parser.add_argument("--return-text", action="store_true", help="repeat each candidate's text in the answer")
    parser.add_argument("--return-heads", action="store_true", help="give each head's probability")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar, even on a terminal")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    with _open(arguments.file) as file:
        checkpoint = read_checkpoint(arguments.checkpoint or default_checkpoint())
        backend = open_backend(checkpoint, **asdict(backend_options(arguments)), threads=arguments.threads)
        first = None
        if checkpoint.config.first_stage is not None:
            first = open_offline(checkpoint, **asdict(backend_options(arguments)), threads=arguments.threads)
        ranker = _Ranker(checkpoint, first, backend, arguments)
        return _rank_lines(ranker, file, arguments) if arguments.question is None else _rank_texts(ranker, file)


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")


def _rank_lines(ranker: _Ranker, file: BinaryIO, arguments: argparse.Namespace) -> int:
    """Answer every valid line; invalid lines are reported on standard error and make the exit code 1."""
    failed = 0
    for number, line in _numbered(file, arguments.no_progress):
        if not line.strip():
            continue
        try:
            answer = ranker.rank(read_line(line))
        except (ValueError, NonFiniteScoreError) as error:
            tqdm.write(f"{arguments.file}:{number}: {error}", file=sys.stderr)
            failed += 1
        else:
            sys.stdout.write(json.dumps(answer, ensure_ascii=False) + "\n")
            sys.stdout.flush()  # a caller that writes line by line waits for each answer
    return 1 if failed else 0


def _rank_texts(ranker: _Ranker, file: BinaryIO) -> int:
    """Rank the lines for one question; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.strip() for line in file.read().decode("utf-8-sig", "replace").split("\n")]
    candidates = [line for line in lines if line]
    if not candidates:
        raise ValueError("there is no candidate: give one a line")
    line = read_line(json.dumps({"question": ranker.arguments.question, "candidates": candidates}).encode())
    for result in ranker.rank(line)["results"]:
        sys.stdout.write(f"{result['score']:.4f}  {candidates[result['index']]}\n")
    sys.stdout.flush()
    return 0


def _numbered(file: BinaryIO, off: bool) -> Iterator[tuple[int, bytes]]:
    """Lines counted from 1, with a bar on standard error when that is a terminal and the work takes over a second."""
    try:
        state = os.fstat(file.fileno())
        size = state.st_size if stat.S_ISREG(state.st_mode) else None
    except OSError:
        size = None
    with tqdm(total=size, unit="B", unit_scale=True, disable=True if off else None, delay=1.0) as bar:
        for number, line in enumerate(file, start=1):
            yield number, line
            bar.update(len(line))


class _Ranker:
    """A backend with the options of one invocation of the program."""

    def __init__(
        self, checkpoint: Checkpoint, first: FirstStage | None, backend: Backend[Any], arguments: argparse.Namespace
    ) -> None:
        self._checkpoint, self._first, self._backend, self.arguments = checkpoint, first, backend, arguments
        self._encoder = checkpoint.encoder()
        self._windowing = windowing_option(arguments.windows)
        self._policy = checkpoint.config.drop_policy(one_or_all(arguments.drop_ratio), keep=arguments.top_k or 1)

    def rank(self, line: QuestionLine) -> dict[str, Any]:
        """The answer in the shape of `/v1/rank`, without times."""
        items = line.parsed()
        ranking, truncated, tokens = self._ranking(line.question, [item.candidate() for item in items])
        top_k = self.arguments.top_k
        results = []
        for index in ranking.order[:top_k].tolist():
            result: dict[str, Any] = {
                "index": index,
                "score": float(ranking.scores[index]),
                "stage": int(ranking.stages[index]),
                "truncated": bool(truncated[index]),
            }
            if items[index].id is not None:
                result["id"] = items[index].id
            heads = ranking.head_scores
            if self.arguments.return_heads and heads is not None and not np.isnan(heads[index, 0]):
                result["heads"] = heads[index].tolist()
            if ranking.spans is not None and ranking.spans[index, 0] != NO_SPAN:
                result["window"] = dict(zip(("start", "end"), ranking.spans[index].tolist(), strict=True))
            if self.arguments.return_text:
                result["text"] = items[index].text
            results.append(result)
        answer: dict[str, Any] = {} if line.id is None else {"id": line.id}
        return answer | {
            "model": self._checkpoint.config.name,
            "version": self._checkpoint.manifest.version,
            "drop_schedule": list(self._policy.ratios),
            "results": results,
            "usage": {"candidates": len(items), "tokens": tokens},
        }

    def _ranking(self, question: str, candidates: list[Candidate]) -> tuple[Ranking, NDArray[np.bool_], int]:
        """The ranking, which candidates were cut, and the tokens that were read."""
        if self._first is None:
            pairs = self._encoder.encode(question, candidates, windowing=self._windowing)
            return rank_pairs(self._backend, pairs, self._policy), pairs.truncated_candidates, pairs.tokens
        got = rank_texts(
            self._first,
            self._backend,
            self._encoder,
            question,
            candidates,
            policy=self._policy,
            windowing=self._windowing,
        )
        return got.ranking, got.truncated, got.tokens
