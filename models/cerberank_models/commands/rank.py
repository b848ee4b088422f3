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
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from cerberank_models.answer import Answer
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_models.commands.backend_options import add_backend_options, add_windows_option, backend_options
from cerberank_models.commands.question_lines import QuestionLine, read_line
from cerberank_models.commands.ratios import one_or_all, ratios
from cerberank_models.rank import NonFiniteScoreError
from cerberank_models.ranker import Ranker


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
        options = backend_options(arguments)
        ranker = Ranker.load(
            arguments.checkpoint or default_checkpoint(),
            device=options.device,
            backend=options.kind,
            precision=options.precision,
            threads=arguments.threads,
        )
        ranker.checkpoint.config.drop_policy(one_or_all(arguments.drop_ratio))  # a wrong number of ratios, once for all
        rank = _rank_lines if arguments.question is None else _rank_texts
        return rank(ranker, file, arguments)


def _open(name: str) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")


def _rank_lines(ranker: Ranker, file: BinaryIO, arguments: argparse.Namespace) -> int:
    """Answer every valid line; invalid lines are reported on standard error and make the exit code 1."""
    failed = 0
    for number, line in _numbered(file, arguments.no_progress):
        if not line.strip():
            continue
        try:
            answer = _answer(ranker, read_line(line), arguments)
        except (ValueError, NonFiniteScoreError) as error:
            tqdm.write(f"{arguments.file}:{number}: {error}", file=sys.stderr)
            failed += 1
        else:
            sys.stdout.write(json.dumps(answer.to_json(), ensure_ascii=False) + "\n")
            sys.stdout.flush()  # a caller that writes line by line waits for each answer
    return 1 if failed else 0


def _rank_texts(ranker: Ranker, file: BinaryIO, arguments: argparse.Namespace) -> int:
    """Rank the lines for one question; bytes that are not UTF-8 become U+FFFD."""
    lines = [line.strip() for line in file.read().decode("utf-8-sig", "replace").split("\n")]
    candidates = [line for line in lines if line]
    if not candidates:
        raise ValueError("there is no candidate: give one a line")
    line = read_line(json.dumps({"question": arguments.question, "candidates": candidates}).encode())
    for result in _answer(ranker, line, arguments):
        sys.stdout.write(f"{result.score:.4f}  {candidates[result.index]}\n")
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


def _answer(ranker: Ranker, line: QuestionLine, arguments: argparse.Namespace) -> Answer:
    """The answer to a line, by the options of the program."""
    answer = ranker.rank(
        line.question,
        [item.model_dump() for item in line.parsed()],
        top_k=arguments.top_k,
        drop_ratio=one_or_all(arguments.drop_ratio),
        windows=arguments.windows or "best",
        return_text=arguments.return_text,
    )
    if not arguments.return_heads:
        answer = replace(answer, results=tuple(replace(result, heads=None) for result in answer))
    return replace(answer, id=line.id)
