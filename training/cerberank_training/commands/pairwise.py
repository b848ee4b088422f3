"""`cerberank train pairwise`: train a text ranker on triples, one of TRMD's teachers or students. A killed run resumes.

monoBERT (mono), TwinBERT (twin) and ColBERT (colbert) are trained on labels, as are the students without distillation
(tr-*). trmd-* also learn from `--mono` and `--bi`, folders that this verb wrote as OUT/ranker, of the same encoder.
Several GPUs or processes: `torchrun --nproc-per-node 4 -m cerberank train pairwise ...`.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path

import torch

from cerberank_models.checkpoint.folder import CheckpointError
from cerberank_models.config import TextEncodingConfig
from cerberank_models.convert.families import UnsupportedModelError
from cerberank_models.first_stage.folder import read_text_ranker, write_text_ranker
from cerberank_models.text_encoding import TextEncoder
from cerberank_training.data import DataError, read_questions
from cerberank_training.data.notes import print_on_stderr
from cerberank_training.data.triple_sampling import TripleSampling, triple_sampler_for
from cerberank_training.evaluation.metrics import METRICS
from cerberank_training.evaluation.sources.text_ranker import dev_metric
from cerberank_training.learning.pairwise.objective import PairwiseObjective
from cerberank_training.learning.pairwise.run import PairwiseRun
from cerberank_training.learning.pairwise.teachers import FrozenTeacher, Teachers
from cerberank_training.learning.processes import Processes, launched_processes
from cerberank_training.learning.train_config import TrainConfig, bound_settings
from cerberank_training.runs.base import find_base
from cerberank_training.runs.content import data_content, folder_content
from cerberank_training.runs.dev_set import check_held_out, chosen_size, dev_set, in_common, measured
from cerberank_training.runs.options import named_options
from cerberank_training.runs.place import check_device, check_writable, writing
from cerberank_training.runs.record import NOTHING_SAVED, open_record, said_of_start
from cerberank_training.runs.software import software
from cerberank_training.runs.step_log import dev_at_start, last_step
from cerberank_training.students.text_rankers import (
    RELEASED_LEARNING_RATE,
    SYSTEMS,
    build_text_ranker,
    paper_training,
    released_objective,
)
from cerberank_training.tracking.opening import add_tracking_option, check_trackers, open_trackers


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = parser().parse_args(argv)
    try:
        with writing(arguments.out):
            best, start = _train(arguments)
    except (CheckpointError, DataError, UnsupportedModelError, ValueError, OSError) as error:
        print(f"cerberank train pairwise: {error}", file=sys.stderr)  # noqa: T201
        return 1
    ranker = arguments.out / "ranker"
    print(f"{ranker}: best dev {arguments.select} {best:.2f}{said_of_start(start, best)}")  # noqa: T201
    return 0


def parser() -> argparse.ArgumentParser:
    """The options of the verb."""
    parser = argparse.ArgumentParser(prog="cerberank train pairwise", description=__doc__)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--base", required=True, help="path or hub id of an encoder")
    parser.add_argument("--layers", type=int, help="use so many of its first layers (default: all)")
    parser.add_argument("--train", metavar="FORMAT:PATH", required=True, help="questions to draw triples from")
    parser.add_argument("--top", type=int, default=100, help="draw negatives from so many of BM25's best texts")
    parser.add_argument(
        "--own", type=float, default=0.0, help="share of negatives that are the question's own candidates; 1: no BM25"
    )
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="questions to choose weights by")
    parser.add_argument("--dev-questions", type=int, default=300, help="how many of them to sample")
    parser.add_argument("--select", choices=METRICS, default="map", help="the metric to choose weights by")
    parser.add_argument("--mono", type=Path, help="trmd-*: the folder of monoBERT")
    parser.add_argument("--bi", type=Path, help="trmd-*: the folder of TwinBERT or ColBERT")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; the result is OUT/ranker")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N")
    add_tracking_option(parser)
    loss = parser.add_argument_group("losses and rates: the paper's, unless --released is given")
    loss.add_argument("--released", action="store_true", help="losses and learning rate of TRMD's released code")
    loss.add_argument("--hard", choices=("hinge", "softmax"), help="hinge on softmax, or 1 - softmax+")
    loss.add_argument("--margin", type=float, help="of the hinge")
    loss.add_argument("--representations", choices=("tokens", "post_residual"), help="what the bi-encoder teaches")
    loss.add_argument("--hard-weight", type=float)
    loss.add_argument("--cls-weight", type=float)
    loss.add_argument("--representation-weight", type=float)
    loss.add_argument("--learning-rate", type=float, help="of the encoder")
    loss.add_argument("--fresh-learning-rate", type=float, help="of the rankers")
    schedule = parser.add_argument_group("schedule")
    schedule.add_argument("--steps", type=int, required=True)
    schedule.add_argument("--triples-per-step", dest="questions_per_step", type=int)
    schedule.add_argument("--warmup", type=float, help="share of the steps in which the learning rate rises")
    schedule.add_argument("--dropout", type=float)
    schedule.add_argument("--precision", choices=("fp32", "bf16"))
    schedule.add_argument("--evaluate-every", type=int)
    schedule.add_argument("--save-every", type=int, help="steps between two states that a killed run goes on from")
    schedule.add_argument("--patience", type=int, help="evaluations without improvement before it stops")
    schedule.add_argument("--seed", type=int)
    texts = parser.add_argument_group("most tokens of a text, special ones not counted")
    texts.add_argument("--question-length", type=int)
    texts.add_argument("--document-length", type=int)
    texts.add_argument("--window", type=int, help="of a document that are encoded at once")
    return parser


def _train(arguments: argparse.Namespace) -> tuple[float, float | None]:
    """Train as the options say; returns the best figure on dev, and that before the first step."""
    system = SYSTEMS[arguments.system]
    if system.taught != bool(arguments.mono or arguments.bi):
        need = "needs --mono or --bi, or both" if system.taught else "learns from no teacher"
        raise ValueError(f"{arguments.system} {need}")
    check_trackers(arguments.track)
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    config = paper_training(arguments.steps)
    objective = released_objective(system) if arguments.released else PairwiseObjective()
    if arguments.released:
        config = replace(config, learning_rate=RELEASED_LEARNING_RATE)
    config = replace(config, **{name: given[name] for name in TrainConfig.__slots__ if name in given})
    objective = replace(objective, **{name: given[name] for name in PairwiseObjective.__slots__ if name in given})
    with named_options(vars(arguments)):
        encoding = TextEncodingConfig(
            **{name: given[name] for name in TextEncodingConfig.model_fields if name in given}
        )
    size = chosen_size("", arguments.dev_questions)
    check_device(arguments.device)
    check_writable(arguments.out)
    base = find_base(arguments.base)
    dev = dev_set(arguments.dev, size)
    questions = list(read_questions(arguments.train, training=True))
    content, dev_content = data_content(arguments.train, questions), data_content(arguments.dev, dev)
    check_held_out(arguments.dev, dev_content, train=arguments.train, train_content=content)
    sampling = TripleSampling(top=arguments.top, own=arguments.own)
    triples = triple_sampler_for(arguments.train, questions, sampling, seed=config.seed)
    ranker_folder = arguments.out / "ranker"
    record = open_record(
        arguments.out,
        "pairwise",
        bound={
            "base": base.content,
            "data": content,
            "dev": {"size": size, "select": arguments.select} | dev_content,
            "teachers": {role: folder_content(given[role]) for role in ("mono", "bi") if role in given},
            "settings": {name: getattr(arguments, name) for name in ("system", "layers")}
            | {"sampling": asdict(sampling), "encoding": encoding.model_dump(), "objective": asdict(objective)}
            | {"train": bound_settings(config)},
            "processes": launched_processes(),
        },
        free={name: getattr(config, name) for name in ("steps", "patience", "save_every")}
        | {"names": {name: getattr(arguments, name) for name in ("base", "train", "dev", "mono", "bi", "out")}}
        | {"device": arguments.device},
        software=software(),
        begun=(arguments.out / "state.pt").is_file() or ranker_folder.is_dir(),
    )
    if record.ended and ranker_folder.is_dir():
        print(f"cerberank train pairwise: {ranker_folder} is finished; more --steps extend it", file=sys.stderr)  # noqa: T201
        return float(record.results["best"]), record.results.get("start")
    if ranker_folder.is_dir() and not (arguments.out / "state.pt").is_file():
        raise ValueError(f"{arguments.out} has no state.pt any more: the run cannot be extended")
    if record.planned["steps"] != config.steps:
        config = replace(config, planned=record.planned["steps"])
    ranker, tokenizer = build_text_ranker(
        system,
        base.place,
        name=arguments.system,
        encoding=encoding,
        seed=config.seed,
        dropout=config.dropout,
        layers=arguments.layers,
    )
    teachers = Teachers(mono=_teacher(arguments.mono, config), bi=_teacher(arguments.bi, config))
    run = PairwiseRun(
        arguments.out,
        ranker,
        tokenizer,
        triples,
        config,
        objective=objective,
        teachers=teachers,
        device=arguments.device,
        trackers=open_trackers(arguments.track, arguments.out, name=arguments.out.name, settings=given),
    )
    first = Processes.join(torch.device(arguments.device)).rank == 0
    if first:
        record.write(arguments.out)
        if record.is_repeated and not (arguments.out / "state.pt").is_file():
            print_on_stderr(f"cerberank train pairwise: {NOTHING_SAVED}")
        if line := in_common(dev, (question.text for question in questions)):
            print_on_stderr(f"cerberank train pairwise: {line}")
    best = run.train(dev_metric(TextEncoder(tokenizer, ranker.config), dev, arguments.select))
    if first:
        if ranker_folder.is_dir():  # of the run before it was extended
            ranker_folder.rename(arguments.out / f"ranker-{record.result_digest}")
        reached, start = last_step(arguments.out / "log.jsonl"), dev_at_start(arguments.out / "log.jsonl")
        record.with_results(reached=reached, best=best, start=start, questions=measured(dev)).write(arguments.out)
        write_text_ranker(
            ranker_folder,
            ranker,
            tokenizer,
            version=f"steps-{config.steps}-seed-{config.seed}",
            source=f"TRMD {arguments.system}, run {record.digest}",
            metrics={f"dev_{arguments.select}": best},
        )
    return best, dev_at_start(arguments.out / "log.jsonl")


def _teacher(path: Path | None, config: TrainConfig) -> FrozenTeacher | None:
    if path is None:
        return None
    saved = read_text_ranker(path)
    return FrozenTeacher(str(path), saved.ranker, saved.tokenizer, precision=config.precision)
