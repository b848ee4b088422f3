"""Per-question files of several systems: a folder for each system, in it a file for each data set, `SET.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cerberank_training.data import DataError
from cerberank_training.evaluation.per_question import Records, check_comparable, read_records

Systems = Mapping[str, Mapping[str, Records]]
"""Records by system and set: every system has the same sets, and those of one set are comparable."""


def read_systems(folders: Sequence[Path], *, ranking: str = "final") -> Systems:
    """The systems, named by their folders, in the given order; sets by name.

    Raises DataError for folders of the same name, one without files, a set that a system lacks, a file without the
    ranking, and files of one set that are not comparable.
    """
    files = {folder.resolve().name: sorted(folder.glob("*.jsonl")) for folder in folders}
    if len(files) < len(folders):
        raise DataError("systems are told apart by their folders' names, and two are the same")
    for folder, found in zip(folders, files.values(), strict=True):
        if not found:
            raise DataError(f"{folder} holds no per-question file (*.jsonl)")
    every = {path.stem for found in files.values() for path in found}
    for folder, found in zip(folders, files.values(), strict=True):
        if lacking := sorted(every - {path.stem for path in found}):
            raise DataError(f"{folder} lacks {lacking[0]}.jsonl, a set that other systems have")
    records: dict[str, dict[str, Records]] = {system: {} for system in files}
    for paths in zip(*files.values(), strict=True):
        for system, path in zip(files, paths, strict=True):
            records[system][path.stem] = read_records(path, ranking=ranking)
            check_comparable((paths[0], next(iter(records.values()))[path.stem]), (path, records[system][path.stem]))
    return records
