"""`train teach`: fine-tune a Hugging Face sequence classifier into a teacher. A killed run resumes when repeated.

TANDA is two calls: transfer on a large set, then adapt the result to the target set.
Several GPUs: `torchrun --nproc-per-node 4 -m cerberank train teach ...`.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cerberank_models.convert.bases import check_room, open_teacher_base
from cerberank_models.convert.teacher_input import FILE, TeacherInput
from cerberank_training.data import DataError, open_questions
from cerberank_training.data.notes import print_on_stderr
from cerberank_training.data.sampling import (
    NegativeSampling,
    PairSampling,
    Sampling,
    first_sizes,
    possible_sampling,
    sampler_for,
)
from cerberank_training.learning.processes import check_trainer_device, launched_processes
from cerberank_training.learning.trainer_checkpoint import dev_at_start, last_checkpoint
from cerberank_training.runs.base import find_base, refuse_missing
from cerberank_training.runs.content import data_content
from cerberank_training.runs.dev_set import check_held_out, chosen_size, dev_set, dev_size, in_common, measured
from cerberank_training.runs.options import named_options
from cerberank_training.runs.place import check_writable, writing
from cerberank_training.runs.record import NOTHING_SAVED, open_record, read_record, said_of_start
from cerberank_training.runs.software import software
from cerberank_training.teachers.fine_tuning import TeacherConfig, fine_tune

STEPS = 20_000
RUN = "run"
"""The Trainer's folder within the teacher's."""
FREE = ("steps", "patience", "device")
"""Settings that a run may be continued with other values of."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        with writing(arguments.out):
            best, start = _teach(arguments)
    except (DataError, ValueError, OSError) as error:
        print(f"cerberank train teach: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{arguments.out}: on {arguments.dev}, best dev MAP {best:.2f}{said_of_start(start, best)}")  # noqa: T201
    _say(
        f"next: cerberank data score CACHE --teacher {arguments.out} --data FORMAT:PATH, cerberank import "
        f"{arguments.out} CHECKPOINT, or cerberank train distil --base {arguments.out}"
    )
    return 0


def _say(line: str) -> None:
    """Print a line of the first process of a run."""
    if os.environ.get("RANK", "0") == "0":
        print_on_stderr(f"cerberank train teach: {line}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cerberank train teach", description=__doc__, allow_abbrev=False)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder or of a teacher to adapt")
    parser.add_argument("--train", metavar="FORMAT:PATH", required=True)
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument(
        "--dev-questions",
        type=dev_size,
        metavar="N|all",
        help="how many of them to sample (default: 300, of asnq all)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the teacher")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto", help="auto: a GPU if there is one")
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


def _teach(arguments: argparse.Namespace) -> tuple[float, float | None]:
    """Fine-tune as the options say; returns the best dev MAP, in percent, and that before the first step.

    Raises ValueError, which names the option.
    """
    if arguments.epochs is not None and not 0 < arguments.epochs < math.inf:
        raise ValueError(f"--epochs is {arguments.epochs}; it must be above 0")
    sampling = _sampling(arguments)
    # Checked before any data are read, which may take minutes.
    config = _config(arguments, STEPS if arguments.steps is None else arguments.steps)
    size = chosen_size(arguments.dev, arguments.dev_questions)
    out: Path = arguments.out
    check_writable(out)
    check_trainer_device(arguments.device, arguments.precision)
    refuse_missing(arguments.base)
    opened = open_teacher_base(arguments.base)
    check_room(opened, arguments.max_length)
    base = find_base(arguments.base)
    dev = dev_set(arguments.dev, size)
    explicit = [name for name in ("hard", "random") if getattr(arguments, name) is not None]
    sampling = possible_sampling(arguments.train, sampling, explicit=explicit, report=_say)
    questions = open_questions(arguments.train, training=True)
    sampler = sampler_for(arguments.train, questions, sampling, seed=config.seed)
    processes = launched_processes()
    if arguments.epochs is not None:
        step = config.questions_per_step * config.accumulate * processes
        config = _config(arguments, math.ceil(arguments.epochs * len(sampler) / step))
    content, dev_content = data_content(arguments.train, questions), data_content(arguments.dev, dev)
    check_held_out(arguments.dev, dev_content, train=arguments.train, train_content=content)
    record = open_record(
        out,
        "teach",
        bound={
            "base": base.content,
            "data": content,
            "dev": {"size": size} | dev_content,
            "sampling": {"mode": arguments.sampling} | asdict(sampling),
            "settings": _bound(config),
            "processes": processes,
        },
        free={name: getattr(config, name) for name in FREE}
        | {
            "names": {"train": arguments.train, "dev": arguments.dev, "out": str(out)}
            | {"base": base.name, "place": arguments.base, "commit": base.commit}
        },
        software=software(),
        begun=last_checkpoint(out / RUN) is not None,
    )
    if record.ended and (out / FILE).is_file():
        _say(f"{out} is finished; more --steps extend it")
        return float(record.results["best"]), record.results.get("start")
    first = os.environ.get("RANK", "0") == "0"
    if first:
        record.write(out)
        if record.is_repeated and last_checkpoint(out / RUN) is None:
            _say(NOTHING_SAVED)
        if line := in_common(dev, questions.question_texts()):
            _say(line)
        own = "" if opened.is_cross_encoder else ", and its classifier of two logits from random weights"
        size_of_step = config.questions_per_step * config.accumulate * processes
        groups = [sampler.step(each, 1)[0] for each in range(size_of_step)]
        _say(f"starts from {arguments.base}, {opened.kind}{own}; {first_sizes(groups)}")
    if record.planned["steps"] != config.steps:
        config = replace(config, planned=record.planned["steps"])
    best = fine_tune(base.place, out, sampler, dev, config, further=bool(record.results))
    start = dev_at_start(out / RUN)
    if first:
        reached = int(str(last_checkpoint(out / RUN)).rpartition("-")[2])
        record.with_results(reached=reached, best=best, start=start, questions=measured(dev)).write(out)
    return best, start


def _bound(config: TeacherConfig) -> dict[str, Any]:
    """The settings with which a run that was begun must go on."""
    settings = asdict(config) | {"input": config.input.model_dump()}
    return {name: value for name, value in settings.items() if name not in (*FREE, "planned")}


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
    with named_options(vars(arguments)):
        given |= {
            "steps": steps,
            "evaluate_every": _evaluate_every(arguments, steps),
            "input": TeacherInput(max_length=arguments.max_length, context=arguments.context),
            "device": "cpu" if arguments.device == "cpu" else "auto",
        }
        return TeacherConfig(**given)


def _evaluate_every(arguments: argparse.Namespace, steps: int) -> int:
    """The steps that were given; or as many as the run in the folder was begun with; or 250, or all of fewer."""
    if arguments.evaluate_every is not None:
        return int(arguments.evaluate_every)
    have = read_record(arguments.out)
    return min(250, steps) if have is None or have.verb != "teach" else int(have.bound["settings"]["evaluate_every"])
