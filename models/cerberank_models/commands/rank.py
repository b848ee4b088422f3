"""The command `cerberank rank`, which ranks candidates from a file or standard input without a service."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, BinaryIO

from cyclopts import Parameter
from tqdm import tqdm

from cerberank_models.answer import Answer
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.commands.options import OWN, BackendOptions, Ratios, Windows, chosen_device, one_or_all
from cerberank_models.commands.question_lines import QuestionLine, read_line
from cerberank_models.commands.values import Count, Dropped
from cerberank_models.output import printable
from cerberank_models.progress import progress
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.ranker import Ranker
from cerberank_models.request import is_blank

Answered = Callable[[QuestionLine], Answer]
"""A function that answers a line of the input, by the options of the call."""


def rank(
    file: str = "-",
    /,
    *,
    question: str | None = None,
    checkpoint: Path | None = None,
    top_k: Count | None = None,
    windows: Windows = None,
    drop_ratio: Ratios | None = None,
    lexical_ratio: Dropped | None = None,
    backend: BackendOptions = OWN,
    threads: Count | None = None,
    return_text: bool = False,
    return_heads: bool = False,
    progress: Annotated[bool, Parameter(negative="--no-progress")] = True,
) -> int:
    """Rank candidates from a file or standard input, as the service ranks them.

    A line `{"question": ..., "candidates": [text | {"text", "previous"?, "next"?, "id"?}]}` becomes a line in the shape
    of a `/v1/rank` answer, which is written at once. With --question the input is one candidate per line, and the
    output is a table for people, with `answerable` and warnings on standard error. Invalid lines are reported and
    skipped, and the exit code is then 1.

    Args:
        file: Input; - is standard input.
        question: Question for which to rank the lines of the input.
        checkpoint: Checkpoint folder (default: CERBERANK_CHECKPOINT, else the bundled one).
        top_k: Results for each question (default: all).
        windows: Reading of long texts.
        drop_ratio: Share of the candidates that each exit drops: one number, or one for each exit (0.3,0.3).
        lexical_ratio: Share of the candidates that is dropped before any layer, by BM25.
        backend: Backend.
        threads: Threads of the model (default: all usable processors).
        return_text: Repeat the text of each candidate in the answer.
        return_heads: Add the probability of each head.
        progress: Show the progress on a terminal.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # JSON is UTF-8 in any locale
    try:
        with _open(file) as opened:
            ranker = Ranker.load(
                checkpoint or default_checkpoint(),
                device=chosen_device(backend.device),
                backend=backend.backend,
                precision=backend.precision,
                threads=threads,
            )
            ranker.checkpoint.config.drop_policy(one_or_all(drop_ratio))  # rejects a wrong number of ratios
            rank_line = partial(
                ranker.rank,
                top_k=top_k,
                drop_ratio=one_or_all(drop_ratio),
                lexical_ratio=lexical_ratio,
                windows=windows,
                return_text=return_text,
            )
            answered = partial(_answer, rank_line, return_heads=return_heads)
            if question is None:
                return _rank_lines(answered, opened, file, shown=progress)
            return _rank_texts(answered, opened, question)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Python must not write to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")


def _rank_lines(answered: Answered, file: BinaryIO, name: str, *, shown: bool) -> int:
    """Answer every valid line; returns exit code 1 if there are invalid lines, which go to standard error."""
    failed = 0
    for number, line in _numbered(file, shown):
        if not line.strip():
            continue
        try:
            answer = answered(read_line(line))
        except (ValueError, NonFiniteScoreError) as error:
            tqdm.write(printable(f"{name}:{number}: {error}"), file=sys.stderr)
            failed += 1
        else:
            sys.stdout.write(json.dumps(answer.to_json(), ensure_ascii=False) + "\n")
            sys.stdout.flush()  # a caller may wait for each answer before it writes the next line
    return 1 if failed else 0


def _rank_texts(answered: Answered, file: BinaryIO, question: str) -> int:
    """Rank the lines for one question; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.strip() for line in file.read().decode("utf-8-sig", "replace").split("\n")]
    candidates = [line for line in lines if not is_blank(line)]
    if not candidates:
        raise ValueError("there is no candidate: give one a line")
    line = read_line(json.dumps({"question": question, "candidates": candidates}).encode())
    answer = answered(line)
    if answer.answerable is not None:
        sys.stderr.write(f"answerable: {answer.answerable:.4f}\n")
    for warning in answer.warnings:
        sys.stderr.write(f"{printable(warning)}\n")
    for result in answer:
        score = "dropped" if result.score is None else f"{result.score:.4f}"  # by the lexical layer, without a score
        sys.stdout.write(f"{score}  {printable(candidates[result.index])}\n")
    sys.stdout.flush()
    return 0


def _numbered(file: BinaryIO, shown: bool) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers from 1. A bar is shown on a terminal if the work takes more than a second."""
    try:
        state = os.fstat(file.fileno())
        size = state.st_size if stat.S_ISREG(state.st_mode) else None
    except OSError:
        size = None
    with progress(total=size, unit="B", unit_scale=True, shown=shown) as bar:
        for number, line in enumerate(file, start=1):
            yield number, line
            bar.update(len(line))


def _answer(rank_line: Callable[..., Answer], line: QuestionLine, *, return_heads: bool) -> Answer:
    """The answer to a line, with the line's id."""
    answer = rank_line(line.question, [item.model_dump() for item in line.parsed()])
    if not return_heads:
        answer = replace(answer, results=tuple(replace(result, heads=None) for result in answer))
    return replace(answer, id=line.id)
