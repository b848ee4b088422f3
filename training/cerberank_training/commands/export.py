"""`cerberank export`: write a checkpoint with ONNX graphs in the chosen precisions, if they pass the parity gate.

The new folder keeps the weights, which torch serves in any precision; `--no-weights` makes one for ONNX alone.
With `--hugging-face` it holds one head as a classifier that transformers and sentence-transformers load.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from cerberank_models.backends.contract import Backend
from cerberank_models.backends.torch_backend import TorchBackend, load_ranker
from cerberank_models.checkpoint.first_stage_files import kept_files
from cerberank_models.checkpoint.folder import Checkpoint, CheckpointError, read_checkpoint
from cerberank_models.commands.ratios import ratios
from cerberank_models.convert.checkpoint import ParityError, export_checkpoint
from cerberank_models.convert.hugging_face_options import (
    FOR_CHECKPOINTS,
    add_hugging_face_options,
    check_no_hugging_face,
    write_hugging_face,
)
from cerberank_models.network.ranker import Ranker
from cerberank_training.data import DataError, open_questions, read_questions, sampled
from cerberank_training.evaluation.gate import GateBounds, GateError, measure_parity
from cerberank_training.runs.card import FILE
from cerberank_training.students.calibration import calibration_texts


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cerberank export", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="a checkpoint folder with model.safetensors")
    parser.add_argument("out", type=Path, help="the folder to make; must not exist")
    parser.add_argument(
        "--precisions", default="int8", help="ONNX forms, comma-separated: fp32, fp16, int8; '' for none"
    )
    parser.add_argument(
        "--weights",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep model.safetensors, which torch (GPUs) and further exports need",
    )
    parser.add_argument("--card", type=Path, help="a model card to use instead of the checkpoint's")
    parser.add_argument("--version", help="version of the new folder (default: the checkpoint's)")
    parser.add_argument("--drop-schedule", type=ratios, help="default drop ratios of the new folder, comma-separated")
    parser.add_argument(
        "--calibrate", metavar="FORMAT:PATH", help="data to measure int8 ranges on: of the kind that will be ranked"
    )
    gate = parser.add_argument_group("the gate: how much each form may change on dev data; else nothing is written")
    gate.add_argument("--gate", metavar="FORMAT:PATH", help="dev data; without, only the golden texts are compared")
    gate.add_argument("--gate-questions", type=int, default=200, help="how many questions to sample")
    gate.add_argument(
        "--min-agreement", type=float, default=GateBounds().agreement, help="same first candidate, percent"
    )
    gate.add_argument("--max-map-change", type=float, default=GateBounds().map_change, help="points of MAP")
    gate.add_argument(
        "--max-difference", type=float, default=GateBounds().difference, help="99th percentile of scores'"
    )
    add_hugging_face_options(parser)
    arguments = parser.parse_args(argv)
    try:
        if arguments.hugging_face:
            write_hugging_face(arguments, given=parser.parse_args(argv, Namespace(**dict.fromkeys(FOR_CHECKPOINTS))))
            return 0
        check_no_hugging_face(arguments)
        checkpoint = read_checkpoint(arguments.checkpoint)
        ranker = load_ranker(checkpoint)
        precisions = tuple(filter(None, arguments.precisions.split(",")))
        if arguments.drop_schedule:
            ranker.config = type(ranker.config).model_validate(
                {**ranker.config.model_dump(), "drop_schedule": arguments.drop_schedule}
            )
        export_checkpoint(
            ranker,
            Tokenizer.from_file(str(checkpoint.path / "tokenizer.json")),
            arguments.out,
            card=(arguments.card or checkpoint.path / "README.md").read_text(encoding="utf-8"),
            version=arguments.version or checkpoint.manifest.version,
            source=checkpoint.manifest.source,
            metrics=checkpoint.manifest.metrics,
            precisions=precisions,
            weights=arguments.weights,
            calibration=calibration_texts(open_questions(arguments.calibrate)) if arguments.calibrate else (),
            accept=_gate(arguments, ranker, checkpoint),
            first_stage=kept_files(
                checkpoint.path, checkpoint.manifest.files, precisions=precisions, weights=arguments.weights
            ),
            further={FILE: checkpoint.path / FILE} if FILE in checkpoint.manifest.files else {},
        )
        forms = ", ".join([*(["weights"] if arguments.weights else []), *(f"ONNX {each}" for each in precisions)])
        print(  # noqa: T201
            f"cerberank export: {arguments.out} has {forms}; next: cerberank store push {arguments.out} STORE "
            f"--label stable, or CERBERANK_CHECKPOINT={arguments.out} cerberank serve",
            file=sys.stderr,
        )
    except (CheckpointError, DataError, ParityError, GateError, OSError, ValueError) as error:
        print(f"cerberank export: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _gate(arguments: argparse.Namespace, ranker: Ranker, checkpoint: Checkpoint) -> Callable[[str, Backend[Any]], None]:
    """A check that compares each form with PyTorch on a dev sample and prints the changes; without data it accepts."""
    if not arguments.gate:
        return lambda precision, form: None
    questions = sampled(read_questions(arguments.gate), size=arguments.gate_questions, seed=0, name="clean")
    bounds = GateBounds(
        agreement=arguments.min_agreement, map_change=arguments.max_map_change, difference=arguments.max_difference
    )

    def accept(precision: str, form: Backend[Any]) -> None:
        parity = measure_parity(form, TorchBackend(ranker), checkpoint.encoder(), questions)
        print(  # noqa: T201
            f"{precision}: top-1 agreement {parity.agreement:.1f} %, MAP {parity.map_change:+.2f}, "
            f"scores within {parity.difference:.3f} (99 %), {parity.questions} questions"
        )
        parity.check(precision, bounds)

    return accept
