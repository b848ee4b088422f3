"""The life cycle of a training run, and its record: `record.json` of the run's folder.

The record has the settings, the names that may change, every call, and the results. A call with other settings
(`bound`) is refused with the setting's name. Changes of names and devices are recorded with the call that made them.
The file is replaced by a rename, so that a killed process leaves the old or the new file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from cerberank_models import __version__
from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.bound import ANEW, SHA256, SHORT, Bound, BoundError, differences, plain
from cerberank_models.checkpoint.regular import NotRegularError, read_regular
from cerberank_models.output import note
from cerberank_models.transformer import Frozen

RECORD = "record.json"
STATE = "state.pt"
"""The file of the state that a run saves."""
FORMAT = 2
"""Format 1, of version 0.1.0, had settings that could change: steps and patience."""
LARGEST = 1 << 26
"""The most bytes of a record and of other files about a run. Digests of a score cache take 100 bytes for a shard."""
LIBRARIES = ("torch", "transformers", "tokenizers")
"""Libraries whose versions a record states."""


def launched_processes() -> int:
    """The number of processes that torchrun starts; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first_process() -> bool:
    """True for a single process, and for the first of those that torchrun starts."""
    return os.environ.get("RANK", "0") == "0"


def note_of(command: str, line: str) -> None:
    """Write a line about the work of `train COMMAND`; of several processes, the first one does."""
    if is_first_process():
        note(f"cerberank train {command}: {line}")


class RunError(BoundError):
    """The folder holds another run than the one that was asked for; the message names the difference."""


class Call(Frozen):
    """One call of the verb that began or continued the run."""

    at: str
    """UTC, ISO 8601."""
    software: dict[str, str]
    changed: dict[str, tuple[Any, Any]] = Field(default_factory=dict)
    """The old and the new value of every setting that this call changed."""


class RunRecord(Frozen):
    """`record.json`."""

    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)] = FORMAT
    verb: str
    result: str
    """The name of the file or folder that the run writes last."""
    bound: dict[str, Any]
    """The settings that all calls must have in common, because they determine the result. Data are given by hash."""
    free: dict[str, Any]
    """Names, recipe and device, which a call may change, as the last call has them."""
    calls: tuple[Call, ...]
    results: dict[str, Any] = Field(default_factory=dict)
    """The results of the finished run; empty until then."""

    @property
    def digest(self) -> str:
        """A digest of everything that determines the result, such as the data and the number of steps."""
        decides = {"verb": self.verb, "bound": _without_names(self.bound)}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:SHORT]


def read_record(out: Path) -> RunRecord | None:
    """The record of the run in `out`, or None. Raises RunError for a record that cannot be read."""
    try:
        return RunRecord.model_validate_json(read_regular(out / RECORD, LARGEST))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except NotRegularError as error:
        raise RunError(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        if any(each["loc"] == ("format",) for each in error.errors()):
            raise RunError(
                f"{out} holds a run of an earlier version, which this one cannot continue; {ANEW}"
            ) from error
        raise RunError(f"{out / RECORD}: {'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}") from error


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run as one call of its command finds it: new, killed, or finished.

    Of several processes, the first one writes files and lines.
    """

    folder: Path
    result: Path
    """The file or folder that the run writes last."""
    record: RunRecord
    """The record with this call, which `begin` writes."""
    is_saved: bool
    """True if an earlier call has saved a state, from which this call continues."""

    @property
    def is_finished(self) -> bool:
        """True if nothing is left to do; a run that was killed while it wrote its result writes it again."""
        return bool(self.record.results) and self.result.exists()

    def begin(self, *lines: str) -> None:
        """Write the record, and say those of the `lines` that are not empty.

        Every process computes the lines, although one writes them: the others would wait for it anyway.
        """
        if is_first_process():
            write_json(self.folder / RECORD, self.record.model_dump(mode="json"))
        if len(self.record.calls) > 1:
            how = "and continues from its saved state" if self.is_saved else "and nothing saved yet: from step 0"
            lines = (f"the run was begun before, {how}", *lines)
        for line in filter(None, lines):
            note_of(self.record.verb, line)

    def finish(self, *, reached: int, **figures: float | None) -> RunRecord:
        """Write the record of a run that has ended after the step `reached`, with the measured `figures`; return it.

        The figures of a ranker are `best`, its dev MAP in percent, and the `best_step` that gave it; `start`, the dev
        MAP before the first step; and the number of `questions`.
        """
        record = self.record.model_copy(update={"results": {"reached": reached} | figures})
        if is_first_process():
            write_json(self.folder / RECORD, record.model_dump(mode="json"))
        return record


def open_run(
    folder: Path, verb: str, *, result: Path, bound: Mapping[str, Any], free: Mapping[str, Any], is_saved: bool
) -> TrainingRun:
    """The run of a call of `train VERB`, whose record is not yet written. The number of processes is bound, too.

    A folder with a record, a saved state or a result belongs to a run. Raises BoundError when that run has other
    settings, and RunError when it is another verb's or has no record.
    """
    bound, free = plain({**bound, "processes": launched_processes()}), plain(free)
    call = Call(at=datetime.now(UTC).isoformat(timespec="seconds"), software=software())
    earlier = read_record(folder)
    if earlier is None and (is_saved or result.exists()):
        raise RunError(f"{folder} holds a run without {RECORD}, so its command and settings are not known; {ANEW}")
    if earlier is None:
        record = RunRecord(verb=verb, result=result.name, bound=bound, free=free, calls=(call,))
        return TrainingRun(folder, result, record, is_saved)
    if earlier.verb != verb:
        raise RunError(f"{folder} holds a run of `cerberank train {earlier.verb}`; {ANEW}")
    try:
        Bound(folder, bound).refuse_other_than(earlier.bound)
    except BoundError as error:
        # What a finished checkpoint is called can be changed without a second training.
        fields = [field for field, *_ in differences(earlier.bound, bound)]
        if earlier.results and all(field.startswith("checkpoint.") for field in fields):
            raise RunError(
                f"{error}. To keep its weights: `cerberank checkpoint card {result}` changes name, version and terms, "
                f"and `cerberank export {result} OUT` the forms"
            ) from error
        raise
    changed = {name: (earlier.free.get(name), free[name]) for name in free if earlier.free.get(name) != free[name]}
    call = call.model_copy(update={"changed": changed})
    record = earlier.model_copy(update={"result": result.name, "free": free, "calls": (*earlier.calls, call)})
    return TrainingRun(folder, result, record, is_saved)


def results_suffix(record: RunRecord) -> str:
    """A suffix of the best dev figure: its step, the figure before the first step, and an end before the last step."""
    results, steps, start = record.results, record.bound["steps"], record.results["start"]
    # Both as they are shown, because the log has six digits of the first.
    worse = ", which is the best: training has made it worse" if round(start, 2) > round(results["best"], 2) else ""
    suffix = f" at step {results['best_step']} ({start:.2f} at step 0{worse})"
    if results["reached"] < steps:
        suffix += f"; training ended after {results['reached']} of {steps} steps, because "
        suffix += f"{record.bound['patience']} evaluations had no gain"
    return suffix


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
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return described.stdout.strip()


def _without_names(value: Any) -> Any:
    """The value, in which lists of sorted digests replace digests by name."""
    if isinstance(value, dict):
        return {
            name: sorted(inner.values()) if name == SHA256 else _without_names(inner) for name, inner in value.items()
        }
    return [_without_names(each) for each in value] if isinstance(value, list) else value
