"""Per-question files of several systems: each system is a folder with a file `SET.jsonl` for each data set.

A system with several runs, such as seeds, is a folder with such a folder for each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cerberank_training.data import DataError
from cerberank_training.evaluation.per_question import Records, check_comparable, read_records

Systems = Mapping[str, Mapping[str, Sequence[Records]]]
"""The records of each run by system and set. All systems have the same sets; records of a set are comparable."""


def read_systems(folders: Sequence[Path], *, ranking: str = "final", sets: Sequence[str] = ()) -> Systems:
    """The systems in the given order, named by their folders. Sets and runs are sorted by name.

    With `sets`, only these are read, and runs that lack one of them are left out, as are systems without a complete
    run. Raises DataError for folders with the same name, a folder without files, a set that a system or run lacks, a
    file without the ranking, and files of a set that are not comparable.
    """
    runs = {folder.resolve().name: _runs(folder) for folder in folders}
    if len(runs) < len(folders):
        raise DataError("systems are told apart by their folders' names, and two are the same")
    if sets:
        complete = {name: [run for run in folders if _has(run, sets)] for name, folders in runs.items()}
        runs = {name: folders for name, folders in complete.items() if folders}
    every = sorted(set(sets)) or sorted(
        {path.stem for folders in runs.values() for run in folders for path in run.glob("*.jsonl")}
    )
    first: dict[str, tuple[Path, Records]] = {}
    records: dict[str, dict[str, list[Records]]] = {system: {name: [] for name in every} for system in runs}
    for system, system_runs in runs.items():
        for path in (run / f"{name}.jsonl" for run in system_runs for name in every):
            if not path.is_file():
                raise DataError(f"{path.parent} lacks {path.name}, a set that other systems have")
            read = read_records(path, ranking=ranking)
            check_comparable(first.setdefault(path.stem, (path, read)), (path, read))
            records[system][path.stem].append(read)
    return records


def _runs(folder: Path) -> list[Path]:
    """The folder itself, or the folders in it that contain per-question files."""
    if any(folder.glob("*.jsonl")):
        return [folder]
    if not (runs := sorted({path.parent for path in folder.glob("*/*.jsonl")})):
        raise DataError(f"{folder} holds no per-question file (*.jsonl), and no folder with one")
    return runs


def _has(run: Path, sets: Sequence[str]) -> bool:
    return all((run / f"{name}.jsonl").is_file() for name in sets)
