"""The files of data, by names without folders of this machine.

Each format lists the files that it reads. A run depends on their content, and a table on disk on their sizes and times.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cerberank_training.data.squad import articles_path


def files_of(path: Path) -> list[Path]:
    """The file itself, or all files of a folder, at any depth, in the order of their paths."""
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def named_files(folder: Path, files: Iterable[Path]) -> dict[str, Path]:
    """The files by their paths within `folder`. A file outside of the folder is given by its name only.

    Equal names get a number: `coll.tsv`, then `coll.tsv 2`.
    """
    inside = Path(os.path.abspath(folder))  # links are not resolved, so that they keep their names
    named: dict[str, Path] = {}
    for file in dict.fromkeys(files):
        place = Path(os.path.abspath(file))
        name = place.relative_to(inside).as_posix() if place.is_relative_to(inside) else place.name
        number = 1
        while (numbered := name if number == 1 else f"{name} {number}") in named:
            number += 1
        named[numbered] = file
    return named


def source_files(path: Path) -> list[Path]:
    """The file with the file of articles beside it, or all files of a folder."""
    articles = articles_path(path)
    return [*files_of(path), *([articles] if path.is_file() and articles.is_file() else [])]
