"""The command `cerberank rank`, which ranks candidates from a file or standard input."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from cerberank_models.answer import Answer
from cerberank_models.commands.options import OWN, BackendOptions, Ratios, Windows, chosen_device, one_or_all
from cerberank_models.commands.question_lines import QuestionLine, read_line
from cerberank_models.commands.values import Count, Dropped
from cerberank_models.output import UsageError, printable
from cerberank_models.progress import progress
from cerberank_models.rank_pairs import NonFiniteScoreError
from cerberank_models.ranker import Ranker
from cerberank_models.request import RankRequest, is_blank

Answered = Callable[[QuestionLine], Answer]
"""A function that answers a line of the input, by the options of the call."""


def rank(
    file: str = "-",
    /,
    *,
    question: str | None = None,
    model: str | None = None,
    url: str | None = None,
    top_k: Count | None = None,
    min_score: float | None = None,
    min_precision: float | None = None,
    drop_ratio: Ratios | None = None,
    lexical_ratio: Dropped | None = None,
    deadline_ms: float | None = None,
    windows: Windows = None,
    instruction: str | None = None,
    backend: BackendOptions = OWN,
    threads: Count | None = None,
    return_text: bool = False,
    return_heads: bool = False,
) -> int:
    """Rank candidates from a file or standard input, in this process or by a service.

    A line is a body of `POST /v1/rank`, `{"question": ..., "candidates": [text | {"text", "previous"?, "next"?,
    "id"?}]}`, whose own options are stronger than those of the command. It becomes a line in the shape
    of the answer, which is written at once. With --question the input is one candidate per line, and the
    output is a table for people, with `answerable` and warnings on standard error. Invalid lines are reported and
    skipped, and the exit code is then 1.

    Args:
        file: Input; - is standard input.
        question: Question for which to rank the lines of the input.
        model: Checkpoint folder, hub id or folder of a Hugging Face cross-encoder, or store://ADDRESS/MODEL@LABEL
            (default: CERBERANK_CHECKPOINT, else the bundled one); with --url, the service's name of a model.
        url: Address of a service to ask instead; the variable CERBERANK_API_KEY is its key, if it needs one.
        top_k: Results for each question (default: all).
        min_score: Leave out results with a lower score.
        min_precision: Leave out results below the calibrated model's threshold for this precision.
        drop_ratio: Share of the candidates that each exit drops: one number, or one for each exit (0.3,0.3).
        lexical_ratio: Share of the candidates that is dropped before any layer, by BM25.
        deadline_ms: Milliseconds after which the best order known by then is the answer.
        windows: Reading of long texts.
        instruction: Task in words, for models with a prompt.
        backend: Backend.
        threads: Threads of the model (default: all usable processors).
        return_text: Repeat the text of each candidate in the answer.
        return_heads: Add the probability of each head.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # JSON is UTF-8 in any locale
    ratios = one_or_all(drop_ratio)
    options: dict[str, object] = {
        "top_k": top_k,
        "min_score": min_score,
        "min_precision": min_precision,
        "drop_ratio": ratios,
        "lexical_ratio": lexical_ratio,
        "deadline_ms": deadline_ms,
        "windows": windows,
        "instruction": instruction,
        "return_heads": return_heads or None,
    }
    try:
        with _open(file) as opened, ExitStack() as resources:
            if url is None:
                rank: Callable[..., Answer] = _ranker(model, backend, threads, ratios).rank
            else:
                if backend != OWN or threads is not None:
                    raise UsageError("--url asks a service, which has its own backend, device, precision and threads")
                from cerberank_models.client import Client  # noqa: PLC0415 - importing httpx takes long

                key = os.environ.get("CERBERANK_API_KEY")
                rank = resources.enter_context(Client(url, api_key=key)).rank
                options["model"] = model
            shared = {name: value for name, value in options.items() if value is not None}
            answered = partial(_answer, rank, texts=return_text)
            if question is None:
                return _rank_lines(answered, shared, opened, file)
            return _rank_texts(answered, shared, opened, question)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Python must not write to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _ranker(
    model: str | None, backend: BackendOptions, threads: int | None, ratios: float | tuple[float, ...] | None
) -> Ranker:
    """The ranker of the options. Raises ValueError for a wrong number of drop ratios."""
    ranker = Ranker.load(
        model,
        device=chosen_device(backend.device),
        backend=backend.backend,
        precision=backend.precision,
        threads=threads,
    )
    ranker.checkpoint.config.drop_policy(ratios)
    return ranker


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    if Path(name).is_dir():
        raise UsageError(f"{name} is a folder, and FILE holds candidates: name a model by --model")
    return nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")


def _rank_lines(answered: Answered, shared: Mapping[str, object], file: BinaryIO, name: str) -> int:
    """Answer every valid line; returns exit code 1 if there are invalid lines, which go to standard error."""
    failed = 0
    for number, line in _numbered(file):
        if not line.strip():
            continue
        try:
            answer = answered(read_line(line, shared))
        except (ValueError, NonFiniteScoreError) as error:
            tqdm.write(printable(f"{name}:{number}: {error}"), file=sys.stderr)
            failed += 1
        else:
            sys.stdout.write(json.dumps(answer.to_json(), ensure_ascii=False) + "\n")
            sys.stdout.flush()  # a caller may wait for each answer before it writes the next line
    return 1 if failed else 0


def _rank_texts(answered: Answered, shared: Mapping[str, object], file: BinaryIO, question: str) -> int:
    """Rank the lines for one question; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.strip() for line in file.read().decode("utf-8-sig", "replace").split("\n")]
    candidates = [line for line in lines if not is_blank(line)]
    if not candidates:
        raise ValueError("there is no candidate: give one a line")
    request = RankRequest.from_fields({"question": question, "candidates": candidates, **shared})
    answer = answered(QuestionLine(id=None, request=request))
    if answer.answerable is not None:
        sys.stderr.write(f"answerable: {answer.answerable:.4f}\n")
    for warning in answer.warnings:
        sys.stderr.write(f"{printable(warning)}\n")
    for result in answer:
        score = "dropped" if result.score is None else f"{result.score:.4f}"  # by the lexical layer, without a score
        early = f" (stage {result.stage})" if 0 <= result.stage < answer[0].stage else ""  # scores of it compare apart
        sys.stdout.write(f"{score}{early}  {printable(candidates[result.index])}\n")
    if not answer.results:
        sys.stderr.write("no candidate reaches the threshold\n")
    sys.stdout.flush()
    return 0


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers from 1. A bar is shown on a terminal if the work takes more than a second."""
    try:
        state = os.fstat(file.fileno())
        size = state.st_size if stat.S_ISREG(state.st_mode) else None
    except OSError:
        size = None
    with progress(total=size, unit="B", unit_scale=True) as bar:
        for number, line in enumerate(file, start=1):
            yield number, line
            bar.update(len(line))


def _answer(rank: Callable[..., Answer], line: QuestionLine, *, texts: bool) -> Answer:
    """The answer to a line, with the line's id."""
    fields = line.request.body()
    texts = fields.pop("return_text", texts)
    answer = rank(**fields)
    if not texts:
        answer = replace(answer, results=tuple(replace(result, text=None) for result in answer))
    return replace(answer, id=line.id)
