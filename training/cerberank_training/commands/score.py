"""`cerberank data score`: a teacher scores a data set into a cache that students learn from.

A killed run resumes when it is repeated. `squad-as2-article:PATH` scores each question against its whole article.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from cerberank_models.backends.registry import BACKENDS, precisions_help
from cerberank_models.convert.teacher_input import TeacherInput
from cerberank_models.encoding import Candidate
from cerberank_models.shards import Work, map_here, map_on_ray
from cerberank_training.data import Question, read_questions
from cerberank_training.data.notes import print_on_stderr
from cerberank_training.runs.place import check_device
from cerberank_training.teachers.scoring.given import Form, ScoreTable, given_teacher, scores_of_data, scores_of_file
from cerberank_training.teachers.scoring.open import open_teacher, teacher_identity
from cerberank_training.teachers.scoring.run import NonFiniteTeacherError, Scores, score_into
from cerberank_training.teachers.scoring.teacher import TeacherSpec
from cerberank_training.teachers.teacher_reader import Pair
from cerberank_training.teachers.teacher_score_cache import TeacherIdentity, TeacherScoreCache


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    told: set[str] = set()

    def report(line: str) -> None:
        """Tell each line once, though the data are read several times."""
        if line not in told:
            told.add(line)
            print_on_stderr(line)

    def questions() -> Iterator[Question]:
        for name in arguments.data:
            yield from read_questions(name, report=report)

    def texts() -> Iterator[tuple[str, Sequence[Candidate]]]:
        for question in questions():
            yield question.text, [labelled.candidate for labelled in question.candidates]

    try:
        shard_map, teacher = _model(arguments) if arguments.teacher else _given(arguments, parser, questions)
        score_into(
            arguments.out,
            texts,
            shard_map,
            teacher=teacher,
            data=arguments.data,
            shard_pairs=arguments.shard_pairs,
            shown=not arguments.no_progress,
        )
        pairs = TeacherScoreCache.open(arguments.out).manifest.pairs
        print_on_stderr(
            f"cerberank data score: {arguments.out} has {pairs} scores by {teacher.name}; next: cerberank evaluate "
            f"--scores {arguments.out} --data FORMAT:PATH, or cerberank train distil --teacher {arguments.out}"
        )
    except (ValueError, NonFiniteTeacherError, RuntimeError, OSError) as error:
        print(f"cerberank data score: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _model(arguments: argparse.Namespace) -> tuple[Scores, TeacherIdentity]:
    """A model that scores; raises ValueError for options of given scores."""
    for flag, value in (("--as", arguments.form), ("--name", arguments.name)):
        if value is not None:
            raise ValueError(f"{flag} is for --scores and --own-scores")
    spec = TeacherSpec(
        source=arguments.teacher,
        backend=arguments.backend,
        precision=arguments.precision,
        device=arguments.device,
        input=TeacherInput.read(arguments.teacher).model_copy(
            update={name: getattr(arguments, name) for name in ("max_length", "context") if getattr(arguments, name)}
        ),
        batch_tokens=arguments.batch_tokens,
    )
    if arguments.engine == "local":  # Ray's workers have devices of their own
        check_device(spec.device, spec.backend if spec.is_checkpoint else "torch")
        return map_here(_opened(spec)), teacher_identity(spec)
    shard_map = map_on_ray(partial(_opened, spec), workers=arguments.workers, device=spec.device)
    return shard_map, teacher_identity(spec)


def _given(
    arguments: argparse.Namespace, parser: argparse.ArgumentParser, questions: Callable[[], Iterator[Question]]
) -> tuple[Scores, TeacherIdentity]:
    """Scores that are given; raises ValueError for options of a model, and the errors of `given_teacher`."""
    for name in ("backend", "precision", "device", "max_length", "context", "batch_tokens", "engine", "workers"):
        if getattr(arguments, name) != parser.get_default(name):
            raise ValueError(f"--{name.replace('_', '-')} is for --teacher: scores are given")
    if arguments.form is None or arguments.name is None:
        raise ValueError("given scores need --as, which says what they are, and --name, which says whose")
    source = str(arguments.scores or "the data's own scores")
    given = scores_of_file(arguments.scores) if arguments.scores else scores_of_data(questions())
    teacher = given_teacher(arguments.name, ScoreTable(given, source), questions(), arguments.form)
    if teacher.unused:
        print_on_stderr(f"cerberank data score: {source}: {teacher.unused} pairs are not in the data, and not used")
    print_on_stderr(f"cerberank data score: {arguments.name}, {teacher.identity.precision}")
    return map_here(teacher.differences), teacher.identity


def _opened(spec: TeacherSpec) -> Work[list[Pair], NDArray[np.float32]]:
    return open_teacher(spec).differences


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank data score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the cache folder to make or to complete")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--teacher", help="a checkpoint folder, or a Hugging Face sequence classifier: folder or hub id"
    )
    source.add_argument("--scores", type=Path, help='JSON lines {"question", "text", "score"}, one for each pair')
    source.add_argument("--own-scores", action="store_true", help="the data's own scores, beside the labels")
    parser.add_argument(
        "--as",
        dest="form",
        choices=get_args(Form),
        help="what given scores are: log-odds, probabilities, or numbers on a scale that the data's labels explain",
    )
    parser.add_argument("--name", help="whose scores are given, such as a judge's name and version")
    parser.add_argument(
        "--data", required=True, action="append", metavar="FORMAT:PATH", help="such as asnq:train.tsv; may be repeated"
    )
    parser.add_argument("--backend", choices=tuple(BACKENDS), default="torch", help="what runs a checkpoint")
    parser.add_argument("--precision", default="fp32", help=precisions_help())
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument(
        "--max-length", type=_count, help="tokens per pair, for a Hugging Face teacher (default: as it was trained)"
    )
    parser.add_argument(
        "--context",
        action="store_true",
        help="a Hugging Face teacher reads previous and next sentence after a separator (default: as trained)",
    )
    parser.add_argument("--batch-tokens", type=_count, default=16384, help="tokens of one batch, padding included")
    parser.add_argument(
        "--shard-pairs", type=_count, default=8192, help="pairs per shard; a killed run loses one shard"
    )
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="this process, or a Ray cluster (RAY_ADDRESS)"
    )
    parser.add_argument("--workers", type=_count, default=1, help="teachers that score in parallel, with --engine ray")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar, even on a terminal")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)
