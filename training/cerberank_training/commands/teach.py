"""`cerberank teach`: fine-tune a Hugging Face sequence classifier into a teacher. A killed run resumes when repeated.

TANDA is two calls: transfer on a large set, then adapt the result to the target set.
Several GPUs: `torchrun --nproc-per-node 4 -m cerberank_models teach ...`.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from cerberank_models.importing.bases import open_teacher_base
from cerberank_models.importing.teacher_input import TeacherInput
from cerberank_training.commands.strategies.runs import SETTINGS, keep_settings
from cerberank_training.data import DataError, Question, open_questions
from cerberank_training.data.sampling import NegativeSampling, PairSampling, Sampling, sampler_for
from cerberank_training.teachers.fine_tuning import TeacherConfig, fine_tune

STEPS = 20_000
PLACE = ("out", "device")
"""Options that a run may be continued with other values of."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        best = _teach(arguments)
    except (DataError, ValueError, OSError) as error:
        print(f"cerberank teach: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{arguments.out}: best dev MAP {best:.2f}")  # noqa: T201
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank teach", description=__doc__, allow_abbrev=False)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder or of a teacher to adapt")
    parser.add_argument("--train", metavar="FORMAT:PATH", required=True)
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument(
        "--dev-questions",
        type=_dev_size,
        default=300,
        metavar="N|all",
        help="how many of them to sample (default: 300)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the teacher")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto")
    texts = parser.add_argument_group("what it reads")
    texts.add_argument("--context", action="store_true", help="read the previous and the next sentence too (SSP)")
    texts.add_argument(
        "--token-types",
        choices=("shared", "fresh", "copied"),
        default="shared",
        help="the context's token type, where the base has no third: the last one it has, a fresh row (SSP), a copy",
    )
    texts.add_argument("--max-length", type=int, default=128, help="tokens of a pair, the longest segments are cut")
    sampling = parser.add_argument_group("groups of candidates, or pairs")
    sampling.add_argument(
        "--sampling",
        choices=("grouped", "pairs"),
        default="grouped",
        help="pairs: every labelled pair once an epoch (SSP)",
    )
    sampling.add_argument("--unanswered", choices=("keep", "drop"), help="pairs of questions without a positive")
    sampling.add_argument("--own", type=int, help="negatives from the question's own candidates (default: 2)")
    sampling.add_argument("--hard", type=int, help="negatives of the article that share rare words (default: 2)")
    sampling.add_argument("--random", type=int, help="other negatives of the article (default: 1)")
    training = parser.add_argument_group("training: the rate rises over the warm-up and falls linearly to 0")
    training.add_argument("--loss", choices=("pointwise", "listwise", "both"))
    length = training.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help=f"default: {STEPS}")
    length.add_argument("--epochs", type=float, help="how often every question, or pair, is drawn, instead of --steps")
    training.add_argument("--questions-per-step", type=int, help="groups, or pairs, of a batch")
    training.add_argument("--accumulate", type=int, help="batches whose gradients make one step")
    training.add_argument("--learning-rate", type=float)
    training.add_argument(
        "--warmup", type=float, help="in which the rate rises: a share of the steps, or from 1 on steps"
    )
    training.add_argument("--weight-decay", type=float)
    training.add_argument("--clip", type=float, help="the largest norm of a step's gradients")
    training.add_argument("--dropout", type=float, help="of hidden states and attention (default: the base's)")
    training.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    training.add_argument("--evaluate-every", type=int, help="steps (default: 250, or all where there are fewer)")
    training.add_argument("--patience", type=int, help="evaluations without a gain in dev MAP before it stops")
    training.add_argument("--seed", type=int)
    return parser


def _dev_size(text: str) -> int | Literal["all"]:
    return "all" if text == "all" else int(text)


def _teach(arguments: argparse.Namespace) -> float:
    """Fine-tune as the options say; returns the best dev MAP, in percent. Raises ValueError, which names the option."""
    if arguments.epochs is not None and not 0 < arguments.epochs < math.inf:
        raise ValueError(f"--epochs is {arguments.epochs}; it must be above 0")
    sampling = _sampling(arguments)
    # Checked before any data are read, which may take minutes.
    config = _config(arguments, STEPS if arguments.steps is None else arguments.steps)
    dev = _dev_questions(arguments.dev, arguments.dev_questions)
    base = open_teacher_base(arguments.base)
    if os.environ.get("RANK", "0") == "0":
        own = "" if base.is_cross_encoder else ", and its classifier of two logits from random weights"
        print(f"cerberank teach: starts from {arguments.base}, {base.kind}{own}", file=sys.stderr)  # noqa: T201
    questions = open_questions(arguments.train)
    sampler = sampler_for(arguments.train, questions, sampling, seed=config.seed)
    if arguments.epochs is not None:
        processes = int(os.environ.get("WORLD_SIZE", "1"))
        step = config.questions_per_step * config.accumulate * processes
        config = _config(arguments, math.ceil(arguments.epochs * len(sampler) / step))
    if not (arguments.out / "run").is_dir():
        (arguments.out / SETTINGS).unlink(missing_ok=True)  # of a call that ended before its first step
    keep_settings(arguments.out, {name: value for name, value in vars(arguments).items() if name not in PLACE})
    return fine_tune(arguments.base, arguments.out, sampler, dev, config)


def _sampling(arguments: argparse.Namespace) -> Sampling:
    negatives = {
        name: getattr(arguments, name) for name in ("own", "hard", "random") if getattr(arguments, name) is not None
    }
    if arguments.sampling == "pairs":
        if negatives:
            raise ValueError(
                f"--{next(iter(negatives))} is for --sampling grouped: pairs are drawn whatever their question"
            )
        if arguments.loss not in (None, "pointwise"):
            raise ValueError(
                f"--loss {arguments.loss} compares a question's candidates, which --sampling pairs does not draw"
            )
        return PairSampling(unanswered=arguments.unanswered == "keep")
    if arguments.unanswered is not None:
        raise ValueError("--unanswered is for --sampling pairs: a group begins with a positive")
    for name, number in negatives.items():
        if number < 0:
            raise ValueError(f"--{name} is {number}; it must be at least 0")
    return NegativeSampling(**negatives)


def _config(arguments: argparse.Namespace, steps: int) -> TeacherConfig:
    given: dict[str, Any] = {
        name: value for name, value in vars(arguments).items() if name in TeacherConfig.__slots__ and value is not None
    }
    given |= {
        "steps": steps,
        "evaluate_every": min(250, steps) if arguments.evaluate_every is None else arguments.evaluate_every,
        "input": TeacherInput(max_length=arguments.max_length, context=arguments.context),
        "device": "cpu" if arguments.device == "cpu" else "auto",
    }
    return TeacherConfig(**given)


def _dev_questions(spec: str, size: int | Literal["all"]) -> Sequence[Question]:
    if size != "all" and size < 1:
        raise ValueError(f"--dev-questions is {size}; it must be at least 1, or all")
    questions = open_questions(spec)
    return questions if size == "all" else random.Random(0).sample(questions, min(size, len(questions)))
