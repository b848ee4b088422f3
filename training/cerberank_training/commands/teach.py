"""`cerberank teach`: fine-tune a Hugging Face sequence classifier into a teacher. A killed run resumes when repeated.

TANDA is two calls: transfer on a large set, then adapt the result to the target set.
Several GPUs: `torchrun --nproc-per-node 4 -m cerberank_models teach ...`.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from cerberank_training.data import DataError, open_questions, read_questions
from cerberank_training.data.sampling import NegativeSampling, sampler_for
from cerberank_training.teachers.fine_tuning import TeacherConfig, fine_tune
from cerberank_training.teachers.teacher_input import TeacherInput


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    sampling = NegativeSampling(own=arguments.own, hard=arguments.hard, random=arguments.random)
    config = TeacherConfig(
        steps=arguments.steps,
        input=TeacherInput(max_length=arguments.max_length, context=arguments.context),
        loss=arguments.loss,
        questions_per_step=arguments.questions_per_step,
        accumulate=arguments.accumulate,
        learning_rate=arguments.learning_rate,
        precision=arguments.precision,
        evaluate_every=arguments.evaluate_every,
        patience=arguments.patience,
        seed=arguments.seed,
        device="cpu" if arguments.device == "cpu" else "auto",
    )
    try:
        questions = open_questions(arguments.train)
        dev = list(read_questions(arguments.dev))
        dev = random.Random(0).sample(dev, min(arguments.dev_questions, len(dev)))
        sampler = sampler_for(arguments.train, questions, sampling, seed=arguments.seed)
        best = fine_tune(arguments.base, arguments.out, sampler, dev, config)
    except (DataError, ValueError, OSError) as error:
        print(f"cerberank teach: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{arguments.out}: best dev MAP {best:.2f}")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank teach", description=__doc__)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder or of a teacher to adapt")
    parser.add_argument("--train", metavar="FORMAT:PATH", required=True)
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument("--dev-questions", type=int, default=300, help="how many of them to sample")
    parser.add_argument("--out", type=Path, required=True, help="folder of the teacher")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    parser.add_argument("--context", action="store_true", help="read previous and next sentence and the title too")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--loss", choices=("pointwise", "listwise", "both"), default="pointwise")
    parser.add_argument("--own", type=int, default=2, help="negatives from the question's own candidates")
    parser.add_argument("--hard", type=int, default=2, help="negatives of the article that share rare words")
    parser.add_argument("--random", type=int, default=1, help="other negatives of the article")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--questions-per-step", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=1, help="batches whose gradients make one step")
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--evaluate-every", type=int, default=250)
    parser.add_argument("--patience", type=int, default=50, help="evaluations without improvement before it stops")
    parser.add_argument("--seed", type=int, default=1)
    return parser
