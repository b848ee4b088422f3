"""`checkpoint card`: change the model card, the name or the version of a checkpoint, and its manifest with them.

Weights, graphs and golden questions stay as they are. A store keeps every version as it was pushed: what was pushed
needs another `--version` to be pushed again.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from cerberank_models.checkpoint.card import read_terms, with_terms, with_title
from cerberank_models.checkpoint.folder import Checkpoint, read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.checkpoint.store.contract import is_name


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="cerberank checkpoint card", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help="the checkpoint folder")
    parser.add_argument("--terms", metavar="TEXT|FILE", help="licence and terms of the data, the card's last section")
    parser.add_argument("--file", type=Path, metavar="CARD.md", help="the whole card, in Markdown")
    parser.add_argument("--name", help="the model's name, as stores and services call it")
    parser.add_argument("--version", help="the version, as stores and services call it")
    arguments = parser.parse_args(argv)
    try:
        made = edit_card(
            arguments.checkpoint,
            terms=arguments.terms,
            file=arguments.file,
            name=arguments.name,
            version=arguments.version,
        )
    except (OSError, ValueError) as error:
        sys.stderr.write(f"cerberank checkpoint card: {error}\n")
        return 1
    sys.stdout.write(f"{arguments.checkpoint} is {made.config.name}@{made.manifest.version}\n")
    return 0


def edit_card(
    path: Path,
    *,
    terms: str | None = None,
    file: Path | None = None,
    name: str | None = None,
    version: str | None = None,
) -> Checkpoint:
    """Put a checkpoint with these changes in the place of `path`; what is None stays.

    The folder is written beside and renamed. A process that is killed between the two renames leaves `path` as a hidden
    folder, which the next call puts back. Raises ValueError for bad names, and when nothing is to be changed.
    """
    if terms is None and file is None and name is None and version is None:
        raise ValueError("give --terms, --file, --name or --version: what to change")
    for option, value in (("--name", name), ("--version", version)):
        if value is not None and not is_name(value):
            raise ValueError(f"{option} {value!r} is no name: letters, digits, '.', '_' and '-', at most 96")
    path = path.resolve()
    new, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    if old.is_dir() and not path.exists():
        old.rename(path)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    checkpoint = read_checkpoint(path)
    card = (file or path / "README.md").read_text(encoding="utf-8")
    config = checkpoint.config
    if name is not None:
        card = with_title(card, config.name, name)
        config = config.model_copy(update={"name": name})
    if terms is not None:
        card = with_terms(card, read_terms(terms))
    revise_checkpoint(checkpoint, new, version=version or checkpoint.manifest.version, config=config, card=card)
    path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)
    return read_checkpoint(path)
