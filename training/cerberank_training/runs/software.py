"""The versions of the software that computes a run."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cerberank_models import __version__

LIBRARIES = ("torch", "transformers", "tokenizers")


def software() -> dict[str, str]:
    """The versions of Python and of each library, and the commit of this code if it is in a git repository."""
    versions = {"python": platform.python_version(), "cerberank": __version__}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    if commit := _commit():
        versions["commit"] = commit
    return versions


def _commit() -> str:
    """The output of `git describe` in the folder of this code; empty if the folder is in no repository."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
