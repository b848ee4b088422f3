"""Uploads a Hugging Face folder to a repository on the hub, with huggingface_hub and its endpoint and token."""

from __future__ import annotations

import re
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class HubError(ValueError):
    """The folder could not be uploaded; the message names the repository and the reason."""


def check_repository(repository: str) -> None:
    """Raise HubError unless `repository` is an id OWNER/NAME."""
    if not REPOSITORY.fullmatch(repository):
        raise HubError(f"--push-to-hub {repository}: a repository is OWNER/NAME")


def push_folder(folder: Path, repository: str, *, private: bool, endpoint: str | None = None) -> str:
    """Upload all files of `folder` as one commit, and make the repository if needed; returns the commit's URL.

    `endpoint` is the hub's URL (default: HF_ENDPOINT, or the public hub). Raises HubError.
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
