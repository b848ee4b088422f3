"""Makes versions of a checkpoint by copying it, and pushes good and bad ones into a store."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore

MOST_VERSIONS = 3
"""Versions that stay in a store; older ones are deleted, as an operator would do."""


def versions_of(checkpoint: Path, folder: Path, versions: list[str]) -> dict[str, Path]:
    """Copies of `checkpoint` that differ only in the version and source of their manifests."""
    folders = {}
    for version in versions:
        folders[version] = Path(shutil.copytree(checkpoint, folder / f"as-{version}"))
        edit(folders[version], version=version, source=f"made as {version}")
    return folders


def edit(checkpoint: Path, **changes: object) -> None:
    """Change the manifest of a checkpoint."""
    path = checkpoint / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@dataclass
class PushedVersions:
    """The versions of one model in `folder/store`, numbered from 1; the label `stable` names the newest good one."""

    checkpoint: Path
    folder: Path
    good: set[str] = field(default_factory=set)
    """The versions that are allowed to answer."""
    stable: str = ""
    number: int = 0

    def __post_init__(self) -> None:
        """Open the store and push the first version."""
        self.store = FolderStore(self.folder / "store")
        self.model = read_checkpoint(self.checkpoint).config.name
        self.push()

    def make(self) -> tuple[str, Path]:
        """Create a new version, which is not in the store yet."""
        self.number += 1
        version = str(self.number)
        return version, versions_of(self.checkpoint, self.folder, [version])[version]

    def push(self) -> str:
        """Push a good version and label it `stable`."""
        version, source = self.make()
        self.accept(version)
        self.store.push(read_checkpoint(source))
        self.store.move_label(self.model, "stable", version)
        shutil.rmtree(source)
        self.delete_old()
        return version

    def accept(self, version: str) -> None:
        """Record a version that is pushed as `stable` and may answer."""
        self.good.add(version)
        self.stable = version

    def delete_old(self) -> None:
        """Delete all but the newest versions and those with labels."""
        labelled = self.store.labels(self.model).values()
        for old in self.store.versions(self.model)[:-MOST_VERSIONS]:
            if old not in labelled:
                shutil.rmtree(self.path(old))

    def push_bad(self, spoil: Callable[[Path], None]) -> str:
        """Make a spoilt version `stable`, until `take_back`."""
        version, source = self.make()
        shutil.copytree(source, self.path(version))
        shutil.rmtree(source)
        spoil(self.path(version))
        self.store.move_label(self.model, "stable", version)
        return version

    def take_back(self, version: str) -> None:
        """Move the label back to the newest good version, and delete the spoilt one."""
        self.store.move_label(self.model, "stable", self.stable)
        shutil.rmtree(self.path(version))

    def path(self, version: str) -> Path:
        """The folder of a version in the store."""
        return self.folder / "store" / self.model / version


def damage(kind: str, version: Path) -> None:
    """Damage a sound version as a bad push of this kind would."""
    graph = sorted((version / "onnx" / "int8").glob("*.onnx"))[0]
    if kind == "torn":
        graph.unlink()
    elif kind == "changed":
        with graph.open("r+b") as file:
            file.seek(os.path.getsize(graph) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
    elif kind == "surplus":
        (version / "onnx" / "int8" / "more.onnx").write_bytes(b"x")
    else:
        golden = version / "golden.jsonl"
        questions = [json.loads(line) for line in golden.read_text().splitlines()]
        for question in questions:
            question["scores"] = {
                name: [(s + 0.5) % 1.0 for s in scores] for name, scores in question["scores"].items()
            }
        golden.write_text("".join(json.dumps(question) + "\n" for question in questions))
        files = json.loads((version / "manifest.json").read_text())["files"]
        edit(version, files=files | {"golden.jsonl": sha256(golden.read_bytes()).hexdigest()})
