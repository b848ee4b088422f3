"""The life cycle of a training run, and its record: `record.json` of the run's folder.

The record has the fixed settings, the settings that may change, every call, and the results. A call with other fixed
settings (`bound`) is refused with the setting's name. Changes of other settings are recorded with the call that made
them. The file is replaced by a rename, so that a killed process leaves the old or the new file.
"""

from __future__ import annotations

import hashlib
import json
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
from cerberank_models.checkpoint.bound import ANEW, SHA256, SHORT, Bound, BoundError, plain
from cerberank_models.checkpoint.regular import NotRegularError, read_regular
from cerberank_models.transformer import Frozen
from cerberank_training.runs.launched import is_first_process, launched_processes, note_of

RECORD = "record.json"
STATE = "state.pt"
"""The file of the state that a run saves."""
LARGEST = 1 << 26
"""The most bytes of a record and of other files about a run. Digests of a score cache take 100 bytes for a shard."""
LIBRARIES = ("torch", "transformers", "tokenizers")
"""Libraries whose versions a record states."""


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

    format: Annotated[int, Field(ge=1, le=1)] = 1
    verb: str
    result: str
    """The name of the file or folder that the run writes last."""
    bound: dict[str, Any]
    """The settings that all calls must have in common, because they determine the result. Data are given by hash."""
    free: dict[str, Any]
    """The settings that a call may change, with the values of the last call."""
    planned: dict[str, Any]
    """`free` of the first call."""
    calls: tuple[Call, ...]
    results: dict[str, Any] = Field(default_factory=dict)
    """The results of the finished run, and the values of `free` that gave them; empty until then."""

    @property
    def digest(self) -> str:
        """A digest of everything that determines the result, such as the data and the number of steps."""
        return self._digest(self.free)

    @property
    def ended(self) -> bool:
        """True if the run has ended, by its steps or by patience, and this call does not extend it.

        Raises RunError when this call asks for more steps but patience has ended the run.
        """
        if not self.results:
            return False
        results, steps, patience = self.results, self.free["steps"], self.free.get("patience")
        if results["reached"] >= steps:
            return True
        by_patience = results["reached"] < results["asked"]
        if not by_patience or patience is None or patience > results["patience"]:
            return False
        if steps > results["asked"]:
            raise RunError(
                f"the run ended after {results['reached']} steps because {results['patience']} evaluations had no "
                "gain: more steps need a larger --patience"
            )
        return True

    @property
    def result_digest(self) -> str:
        """The `digest` of the call that gave the `results`."""
        return self._digest({"steps": self.results.get("asked"), "patience": self.results.get("patience")})

    def _digest(self, free: Mapping[str, Any]) -> str:
        decides = {"verb": self.verb, "bound": _without_names(self.bound)}
        decides |= {name: free.get(name) for name in ("steps", "patience")}
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
        if first["type"] == "missing" and first["loc"] == ("result",):
            raise RunError(f"{out} holds a run of version 0.1.0, which this version cannot continue; {ANEW}") from error
        raise RunError(f"{out / RECORD}: {'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}") from error


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run as one call of its command finds it: new, killed, to be extended, or finished.

    Of several processes, the first one writes files and lines.
    """

    folder: Path
    result: Path
    """The file or folder that the run writes last. An extended run moves the folder aside, or removes the file."""
    record: RunRecord
    """The record with this call, which `begin` writes."""
    is_saved: bool
    """True if an earlier call has saved a state, from which this call continues."""

    @property
    def is_finished(self) -> bool:
        """True if the result is there and this call does not extend it.

        Raises RunError if it needs more patience to be extended, or if its saved state is missing.
        """
        ended, has_result = self.record.ended, self.result.exists()
        if has_result and not ended and not self.is_saved:
            raise RunError(f"{self.folder} has no saved state: the run cannot be extended")
        return ended and has_result

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
        limits = {"asked": self.record.free["steps"], "patience": self.record.free.get("patience")}
        record = self.record.model_copy(update={"results": limits | {"reached": reached} | figures})
        if is_first_process():
            # An earlier result must not stand beside the new record, if this call is killed before it writes its own.
            if self.result.is_dir():
                self.result.rename(self.folder / f"{self.result.name}-{self.record.result_digest}")
            else:
                self.result.unlink(missing_ok=True)
            write_json(self.folder / RECORD, record.model_dump(mode="json"))
        return record


def open_run(
    folder: Path, verb: str, *, result: Path, bound: Mapping[str, Any], free: Mapping[str, Any], is_saved: bool
) -> TrainingRun:
    """The run of a call of `train VERB`, whose record is not yet written. The number of processes is bound, too.

    A folder with a record, a saved state or a result belongs to a run. Raises BoundError when that run has other fixed
    settings, and RunError when `steps` is below its number.
    """
    bound, free = plain({**bound, "processes": launched_processes()}), plain(free)
    call = Call(at=datetime.now(UTC).isoformat(timespec="seconds"), software=software())
    earlier = read_record(folder)
    if earlier is None and (is_saved or result.exists()):
        raise RunError(f"{folder} holds a run without {RECORD}, so its command and settings are not known; {ANEW}")
    if earlier is None:
        record = RunRecord(verb=verb, result=result.name, bound=bound, free=free, planned=free, calls=(call,))
        return TrainingRun(folder, result, record, is_saved)
    if earlier.verb != verb:
        raise RunError(f"{folder} holds a run of `cerberank train {earlier.verb}`; {ANEW}")
    Bound(folder, bound).refuse_other_than(earlier.bound)
    if (free.get("steps") or 0) < (earlier.free.get("steps") or 0):
        raise RunError(
            f"{folder} was begun with steps {earlier.free['steps']}, not {free['steps']}: steps may only grow"
        )
    changed = {name: (earlier.free.get(name), free[name]) for name in free if earlier.free.get(name) != free[name]}
    call = call.model_copy(update={"changed": changed})
    record = earlier.model_copy(update={"result": result.name, "free": free, "calls": (*earlier.calls, call)})
    return TrainingRun(folder, result, record, is_saved)


def results_suffix(results: Mapping[str, Any]) -> str:
    """A suffix of the best dev figure: its step, the figure before the first step, and an end before the last step.

    >>> results = {"asked": 40, "patience": None, "reached": 40, "best": 70.0, "best_step": 30, "start": 61.25}
    >>> results_suffix(results)
    ' at step 30 (61.25 at step 0)'
    >>> results_suffix(results | {"start": 71.5})
    ' at step 30 (71.50 at step 0, which is the best: training has made it worse)'
    >>> results_suffix(results | {"best": 275 / 3, "start": 91.6667})
    ' at step 30 (91.67 at step 0)'
    >>> results_suffix(results | {"reached": 35, "patience": 3})
    ' at step 30 (61.25 at step 0); training ended after 35 of 40 steps, because 3 evaluations had no gain'
    """
    start = results["start"]
    # Both as they are shown, because the log has six digits of the first.
    worse = ", which is the best: training has made it worse" if round(start, 2) > round(results["best"], 2) else ""
    suffix = f" at step {results['best_step']} ({start:.2f} at step 0{worse})"
    if results["reached"] < results["asked"]:
        suffix += f"; training ended after {results['reached']} of {results['asked']} steps, because "
        suffix += f"{results['patience']} evaluations had no gain"
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
