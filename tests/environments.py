"""Environments with some of the packages of this one, made without a network."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def listed(name: str) -> set[str]:
    """The packages that `requirements/NAME` lists."""
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return {canonicalize_name(line.partition("==")[0]) for line in lines if line and not line.startswith("#")}


def link_packages(names: set[str], folder: Path) -> None:
    """Put links to the installed packages of these names into `folder`, which exists."""
    for found in importlib.metadata.distributions():
        if canonicalize_name(found.metadata["Name"]) in names:
            for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                if not (folder / top).exists():
                    (folder / top).symlink_to(Path(str(found.locate_file(top))))


def fresh_environment(folder: Path, wheel: Path, packages: set[str]) -> Path:
    """The programs' folder of a new environment with `wheel` and links to `packages`, and without this checkout."""
    venv.create(folder)
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
    link_packages(packages, next((folder / "lib").glob("python*")) / "site-packages")
    return folder / "bin"


def clean_variables() -> dict[str, str]:
    """This process's environment without what belongs to this Python or to the service."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CERBERANK_"))}
