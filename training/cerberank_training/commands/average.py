"""`cerberank checkpoint average`: the mean of the weights of checkpoints."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from cerberank_models.backends.torch_backend import load_ranker
from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.checkpoint import export_checkpoint
from cerberank_models.output import note
from cerberank_training.students.average import average_rankers


def average(first_folder: Path, /, *more: Path, out: Path, version: str = "average") -> None:
    """Average the weights of checkpoints that were trained further from the same weights.

    The first checkpoint gives the shape, the encoding and the tokenizer; checkpoints with one head count for every
    head. The result drops nothing by default.

    Args:
        first_folder: Checkpoint folder with model.safetensors.
        more: Further checkpoint folders.
        out: Checkpoint folder to make.
        version: Version of the new checkpoint.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists; a checkpoint is never overwritten")
    folders = (first_folder, *more)
    checkpoints = [read_checkpoint(path) for path in folders]
    names = ", ".join(f"{each.config.name} {each.manifest.version}" for each in checkpoints)
    first = checkpoints[0]
    mean = average_rankers([load_ranker(checkpoint) for checkpoint in checkpoints])
    again = "\n`cerberank train tune` measures schedules for it." if mean.config.exits else ""
    card = (first.path / "README.md").read_text(encoding="utf-8")
    export_checkpoint(
        mean,
        Tokenizer.from_file(str(first.path / "tokenizer.json")),
        out,
        card=f"{card}\n## Average\n\nThe mean of the weights of {names}; the figures above are the first one's. "
        f"It drops nothing by default.{again}\n",
        version=version,
        source=f"average of {names}",
        precisions=("fp32",),
    )
    note(
        f"cerberank checkpoint average: {out} is {first.config.name}@{version}, the mean of "
        f"{len(checkpoints)} checkpoints, with weights and ONNX fp32; next: "
        f"cerberank evaluate --checkpoint {out} --precision fp32 --data FORMAT:PATH"
    )
