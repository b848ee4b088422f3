"""`cerberank train pretrain`: continue an encoder's pre-training with context (SSP), on documents of paragraphs.

Writes an ordinary Hugging Face folder with three token types, which `teach`, `pairwise` and `distil` take as --base.
The defaults are the paper's; a batch of 4,096 examples is --batch-size times --accumulate times processes.
A killed run resumes when repeated. Several GPUs: `torchrun --nproc-per-node 4 -m cerberank train pretrain ...`.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

from cerberank_models.convert.bases import check_room, open_base
from cerberank_models.convert.token_types import NewTypes
from cerberank_training.data import DataError
from cerberank_training.learning.processes import check_trainer_device, launched_processes
from cerberank_training.learning.trainer_checkpoint import last_checkpoint
from cerberank_training.pretraining.base import Base, build_start, check_base
from cerberank_training.pretraining.documents import READERS, read_documents
from cerberank_training.pretraining.examples import ExampleGroups, Objective
from cerberank_training.pretraining.network import LossWeights
from cerberank_training.pretraining.run import METRICS, PretrainingConfig, pretrain
from cerberank_training.runs.base import find_base
from cerberank_training.runs.content import data_content
from cerberank_training.runs.dev_set import check_held_out
from cerberank_training.runs.options import named_options
from cerberank_training.runs.place import check_writable, writing
from cerberank_training.runs.record import NOTHING_SAVED, open_record
from cerberank_training.runs.software import software

FREE = ("steps", "device", "planned")
"""Settings that a run may be continued with other values of."""


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    arguments = _parser().parse_args(argv)
    out: Path = arguments.out
    base = Base(
        source=arguments.base,
        generator=arguments.generator,
        layers=arguments.layers,
        token_types=arguments.token_types,
    )
    try:
        with writing(out), named_options(vars(arguments)):
            metrics, count = _pretrain(base, arguments)
    except (DataError, ValueError, OSError) as error:
        print(f"cerberank train pretrain: {error}", file=sys.stderr)  # noqa: T201
        return 1
    hard = f"above a hard negative {metrics['ssp_hard']:.1f} % (50)" if "ssp_hard" in metrics else "no hard negatives"
    print(  # noqa: T201
        f"{out}: on {count} examples of --dev, accuracy {metrics['ssp_accuracy']:.1f} % (75 unread), "
        f"positive first {metrics['ssp_first']:.1f} % (25), {hard}"
    )
    return 0


def _pretrain(base: Base, arguments: argparse.Namespace) -> tuple[dict[str, float], int]:
    """Train, and return the metrics with the number of examples that they were measured on."""
    out: Path = arguments.out
    config = PretrainingConfig(
        steps=arguments.steps,
        batch_size=arguments.batch_size,
        accumulate=arguments.accumulate,
        learning_rate=arguments.learning_rate,
        warmup=arguments.warmup,
        weight_decay=arguments.weight_decay,
        max_length=arguments.max_length,
        precision=arguments.precision,
        evaluate_every=arguments.evaluate_every,
        seed=arguments.seed,
        device=arguments.device,
    )
    weights = LossWeights(ssp=arguments.ssp_weight, mlm=arguments.mlm_weight, rtd=arguments.rtd_weight)
    if arguments.dev_groups < 1:
        raise ValueError(f"dev_groups must be at least 1, not {arguments.dev_groups}")
    check_writable(out)
    check_trainer_device(arguments.device, arguments.precision)
    found = find_base(arguments.base)
    check_base(replace(base, source=found.place))
    check_room(open_base(found.place), config.max_length)
    generator = find_base(arguments.generator) if arguments.generator else None
    documents, held_out = read_documents(arguments.documents), read_documents(arguments.dev)
    train = ExampleGroups(documents, arguments.objective, seed=config.seed)
    dev = ExampleGroups(held_out, arguments.objective, seed=0)
    content, dev_content = data_content(arguments.documents), data_content(arguments.dev)
    check_held_out(arguments.dev, dev_content, train=arguments.documents, train_content=content)
    settings = {name: getattr(arguments, name) for name in ("objective", "layers", "token_types", "dev_groups")}
    record = open_record(
        out,
        "pretrain",
        bound={
            "base": found.content,
            "generator": generator.content if generator else None,
            "documents": content,
            "dev": dev_content,
            "settings": settings
            | {"weights": asdict(weights)}
            | {name: value for name, value in asdict(config).items() if name not in FREE},
            "processes": launched_processes(),
        },
        free={name: getattr(config, name) for name in ("steps", "device")}
        | {"names": {name: getattr(arguments, name) for name in ("base", "generator", "documents", "dev", "out")}},
        software=software(),
        begun=last_checkpoint(out / "run") is not None,
    )
    if record.ended and (out / "model.safetensors").is_file():
        print(f"cerberank train pretrain: {out} is finished; more --steps extend it", file=sys.stderr)  # noqa: T201
        return {name: record.results[name] for name in METRICS if name in record.results}, record.results["examples"]
    if record.planned["steps"] != config.steps:
        config = replace(config, planned=record.planned["steps"])
    placed = replace(base, source=found.place, generator=generator.place if generator else None)
    start = build_start(placed, weights, seed=config.seed)
    if os.environ.get("RANK", "0") == "0":
        record.write(out)
        if record.is_repeated and last_checkpoint(out / "run") is None:
            print(f"cerberank train pretrain: {NOTHING_SAVED}", file=sys.stderr)  # noqa: T201
    print(f"{len(documents):,} documents" + "".join(f", {part} made anew" for part in start.fresh))  # noqa: T201
    examples = [each for index in range(arguments.dev_groups) for each in dev.group(index)]
    metrics = pretrain(start, out, train, examples, config)
    if os.environ.get("RANK", "0") == "0":
        figures = {name: metrics[name] for name in METRICS if name in metrics}
        record.with_results(reached=config.steps, examples=len(examples), **figures).write(out)
    return metrics, len(examples)


def _parser() -> argparse.ArgumentParser:
    defaults = PretrainingConfig()
    parser = argparse.ArgumentParser(prog="cerberank train pretrain", description=__doc__, allow_abbrev=False)
    parser.add_argument("--objective", choices=get_args(Objective), required=True, help="what the context is")
    parser.add_argument("--base", required=True, help="path or hub id of BERT, RoBERTa or ELECTRA's discriminator")
    parser.add_argument("--generator", help="path or hub id of ELECTRA's generator (default: a new, narrow one)")
    parser.add_argument("--layers", type=int, help="the encoder's first layers alone")
    parser.add_argument("--token-types", choices=get_args(NewTypes), default="fresh", help="how new types begin")
    names = ", ".join(READERS)
    parser.add_argument("--documents", metavar="FORMAT:PATH", required=True, help=f"FORMAT is one of {names}")
    parser.add_argument("--dev", metavar="FORMAT:PATH", required=True, help="held-out documents, to measure on")
    parser.add_argument("--dev-groups", type=int, default=100, help="how many groups of four examples of them")
    parser.add_argument("--out", type=Path, required=True, help="folder of the encoder")
    parser.add_argument("--ssp-weight", type=float, default=LossWeights().ssp, help="0: language modelling alone")
    parser.add_argument("--mlm-weight", type=float, default=LossWeights().mlm, help="0: no language modelling")
    parser.add_argument("--rtd-weight", type=float, default=LossWeights().rtd, help="ELECTRA's replaced tokens")
    parser.add_argument("--steps", type=int, default=defaults.steps)
    parser.add_argument("--batch-size", type=int, default=defaults.batch_size, help="examples, a multiple of 4")
    parser.add_argument("--accumulate", type=int, default=1, help="batches whose gradients make one step")
    parser.add_argument("--learning-rate", type=float, default=defaults.learning_rate)
    parser.add_argument(
        "--warmup",
        type=float,
        default=defaults.warmup,
        help="in which the rate rises: a share of the steps, or from 1 on steps",
    )
    parser.add_argument("--weight-decay", type=float, default=defaults.weight_decay)
    parser.add_argument("--max-length", type=int, default=defaults.max_length)
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--evaluate-every", type=int, default=defaults.evaluate_every, help="steps; saves as well")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto", help="auto: a GPU if there is one")
    return parser
