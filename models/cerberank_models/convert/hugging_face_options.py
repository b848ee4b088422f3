"""`cerberank export --hugging-face`: a head of a checkpoint as a folder that transformers loads, and on the hub."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.convert.hugging_face_folder import export_hugging_face

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubError(ValueError):
    """The folder is not on the hub; the message names the repository and says why."""


def check_repository(repository: str) -> None:
    """Raise HubError unless `repository` is an id OWNER/NAME."""
    if not REPOSITORY.fullmatch(repository):
        raise HubError(f"--push-to-hub {repository}: a repository is OWNER/NAME")


def push_folder(folder: Path, repository: str, *, private: bool, endpoint: str | None = None) -> str:
    """Upload all files of `folder` as one commit, making the repository if it is not there; returns the commit's URL.

    `endpoint` is the hub's (default: HF_ENDPOINT, or the public one). Raises HubError; the folder stays as it is.
    """
    api = HfApi(endpoint=endpoint)
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Write by cerberank export --hugging-face"
        )
    except (HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise HubError(f"{folder} is written, and was not uploaded to {repository}: {reason}") from error
    return str(commit.commit_url)


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
