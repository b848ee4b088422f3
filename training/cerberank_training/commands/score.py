"""`cerberank score`: a teacher scores a data set into a cache that students learn from.

A killed run resumes when it is repeated. `squad-as2-article:PATH` scores each question against its whole article.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cerberank_models.backends.registry import BACKENDS, precisions_help
from cerberank_models.encoding import Candidate
from cerberank_models.importing.teacher_input import TeacherInput
from cerberank_training.data import read_questions
from cerberank_training.teachers.scoring.open import open_teacher, teacher_identity
from cerberank_training.teachers.scoring.run import Engine, NonFiniteTeacherError, local, score_into
from cerberank_training.teachers.scoring.teacher import TeacherSpec


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
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

    def texts() -> Iterator[tuple[str, Sequence[Candidate]]]:
        for name in arguments.data:
            for question in read_questions(name):
                yield question.text, [labelled.candidate for labelled in question.candidates]

    try:
        engine = local(open_teacher(spec)) if arguments.engine == "local" else _ray(spec, arguments.workers)
        score_into(
            arguments.out,
            texts,
            engine,
            teacher=teacher_identity(spec),
            data=arguments.data,
            shard_pairs=arguments.shard_pairs,
            progress=not arguments.no_progress,
        )
    except (ValueError, NonFiniteTeacherError, RuntimeError, OSError) as error:
        print(f"cerberank score: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _ray(spec: TeacherSpec, workers: int) -> Engine:
    from cerberank_training.teachers.scoring.ray_engine import ray_engine  # noqa: PLC0415 - an extra of its own

    return ray_engine(spec, workers=workers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cerberank score", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the cache folder to make or to complete")
    parser.add_argument(
        "--teacher", required=True, help="a checkpoint folder, or a Hugging Face sequence classifier: folder or hub id"
    )
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
