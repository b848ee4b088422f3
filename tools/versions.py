"""Creates versions of a checkpoint by copying it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path


def versions_of(checkpoint: Path, folder: Path, versions: list[str]) -> dict[str, Path]:
    """Copies of `checkpoint` that differ only in the version and source of their manifests."""
    made = {}
    for version in versions:
        made[version] = Path(shutil.copytree(checkpoint, folder / f"as-{version}"))
        edit(made[version], version=version, source=f"made as {version}")
    return made


def edit(checkpoint: Path, **changes: object) -> None:
    """Change the manifest of a checkpoint."""
    path = checkpoint / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
