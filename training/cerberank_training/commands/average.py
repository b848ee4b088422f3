"""`checkpoint average`: the mean of the weights of checkpoints that were trained further from the same weights.

The first checkpoint gives the shape, the encoding and the tokenizer; checkpoints with one head count for every head.
Drop schedules are left behind.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tokenizers import Tokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.checkpoint import export_checkpoint
from cerberank_training.students.average import average_rankers


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="cerberank checkpoint average", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to make; must not exist")
    parser.add_argument("checkpoints", type=Path, nargs="+", help="folders with model.safetensors")
    parser.add_argument("--version", default="average", help="version of the new checkpoint")
    arguments = parser.parse_args(argv)
    try:
        _run(arguments)
    except (ValueError, OSError) as error:
        print(f"cerberank checkpoint average: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    if arguments.out.exists():
        raise FileExistsError(f"{arguments.out} exists; a checkpoint is never overwritten")
    checkpoints = [read_checkpoint(path) for path in arguments.checkpoints]
    names = ", ".join(f"{each.config.name} {each.manifest.version}" for each in checkpoints)
    first = checkpoints[0]
    mean = average_rankers([load_ranker(checkpoint) for checkpoint in checkpoints])
    again = "\n`cerberank train tune` measures schedules for it." if mean.config.exits else ""
    card = (first.path / "README.md").read_text(encoding="utf-8")
    export_checkpoint(
        mean,
        Tokenizer.from_file(str(first.path / "tokenizer.json")),
        arguments.out,
        card=f"{card}\n## Average\n\nThe mean of the weights of {names}; the figures above are the first one's. "
        f"It drops nothing by default.{again}\n",
        version=arguments.version,
        source=f"average of {names}",
        precisions=("fp32",),
    )
    print(  # noqa: T201
        f"cerberank checkpoint average: {arguments.out} is {first.config.name}@{arguments.version}, the mean of "
        f"{len(checkpoints)} checkpoints, with weights and ONNX fp32; next: "
        f"cerberank evaluate --checkpoint {arguments.out} --precision fp32 --data FORMAT:PATH",
        file=sys.stderr,
    )
