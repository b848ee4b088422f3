"""`cerberank export --hugging-face`: a head of a checkpoint as a folder that transformers loads, and on the hub."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.export.to_hugging_face.folder import export_hugging_face
from cerberank_models.export.to_hugging_face.hub import check_repository, push_folder

FOR_CHECKPOINTS = (
    *("precisions", "weights", "card", "version", "drop_schedule", "calibrate"),
    *("gate", "gate_questions", "min_agreement", "max_map_change", "max_difference"),
)
"""Options of `cerberank export` that say how a checkpoint is written, and have no meaning for a Hugging Face folder."""


def add_hugging_face_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this way out."""
    group = parser.add_argument_group("a Hugging Face folder instead of a checkpoint")
    group.add_argument(
        "--hugging-face",
        action="store_true",
        help="write a sequence classifier that transformers and sentence-transformers load, with equal scores",
    )
    group.add_argument("--head", type=int, metavar="N", help="of several heads, or beside exits: the head, from 1")
    group.add_argument("--push-to-hub", metavar="OWNER/NAME", help="upload the folder to this repository on the hub")
    group.add_argument("--private", action="store_true", help="make the repository a private one, if it is not there")


def check_no_hugging_face(arguments: argparse.Namespace) -> None:
    """Raise ValueError for an option that needs `--hugging-face`."""
    for name, value in (("head", arguments.head), ("push-to-hub", arguments.push_to_hub)):
        if value is not None:
            raise ValueError(f"--{name} is for --hugging-face")
    if arguments.private:
        raise ValueError("--private is for --hugging-face --push-to-hub")


def write_hugging_face(arguments: argparse.Namespace, *, given: argparse.Namespace) -> None:
    """Write `arguments.out`, upload it if asked to, and say so on standard error.

    `given` has None for each of FOR_CHECKPOINTS that was not given. Raises ValueError, or what the export raises.
    """
    if wrong := next((name for name in FOR_CHECKPOINTS if getattr(given, name) is not None), None):
        raise ValueError(f"--{wrong.replace('_', '-')} is for a checkpoint, and has no meaning with --hugging-face")
    if arguments.private and arguments.push_to_hub is None:
        raise ValueError("--private is for --push-to-hub")
    if arguments.push_to_hub is not None:
        check_repository(arguments.push_to_hub)
    checkpoint = read_checkpoint(arguments.checkpoint)
    out: Path = arguments.out
    export_hugging_face(checkpoint, out, head=arguments.head, repository=arguments.push_to_hub)
    encoding = checkpoint.config.encoding
    if encoding.truncation == "last_first":
        _say(
            f"pairs of more than {encoding.max_length} tokens, or questions of more than {encoding.question_length}, "
            "are cut in another way by transformers, which cuts the longest text first: their scores differ"
        )
    _say(f"{out} loads with AutoModelForSequenceClassification and CrossEncoder, and scores as {checkpoint.path}")
    if arguments.push_to_hub is not None:
        _say(f"uploaded: {push_folder(out, arguments.push_to_hub, private=arguments.private)}")


def _say(line: str) -> None:
    print(f"cerberank export: {line}", file=sys.stderr)  # noqa: T201
