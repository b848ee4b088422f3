"""`record.json` of a run's folder: the fixed settings, the settings that may change, every call, and the results.

A call with other fixed settings (`bound`) is refused with the setting's name. Changes of other settings are recorded
with the call that made them. The file is replaced by a rename, so that a killed process leaves the old or the new file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from cerberank_models.checkpoint.atomic import write_json
from cerberank_models.checkpoint.bound import ANEW, SHA256, SHORT, Bound, BoundError, plain
from cerberank_models.transformer import Frozen

RECORD = "record.json"
NOTHING_SAVED = "the run was begun before, and nothing saved yet: from step 0"


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
        done, steps, patience = self.results, self.free["steps"], self.free.get("patience")
        if done["reached"] >= steps:
            return True
        by_patience = done["reached"] < done["asked"]
        if not by_patience or patience is None or patience > done["patience"]:
            return False
        if steps > done["asked"]:
            raise RunError(
                f"the run ended after {done['reached']} steps because {done['patience']} evaluations had no gain: "
                f"more steps need a larger --patience"
            )
        return True

    @property
    def result_digest(self) -> str:
        """The `digest` of the call that gave the `results`."""
        return self._digest({"steps": self.results.get("asked"), "patience": self.results.get("patience")})

    @property
    def is_repeated(self) -> bool:
        """True if an earlier call has begun the run."""
        return len(self.calls) > 1

    def with_results(self, *, reached: int, **figures: float | None) -> Self:
        """The record of a run that has ended after the step `reached`, with the measured `figures`.

        The figures of a ranker are `best`, its dev MAP in percent; `start`, the dev MAP before the first step, which
        earlier versions did not measure; and the number of `questions`.
        """
        asked = {"asked": self.free["steps"], "patience": self.free.get("patience")}
        return self.model_copy(update={"results": asked | {"reached": reached} | figures})

    def _digest(self, free: Mapping[str, Any]) -> str:
        decides = {"verb": self.verb, "bound": _without_names(self.bound)}
        decides |= {name: free.get(name) for name in ("steps", "patience")}
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:SHORT]

    def write(self, out: Path) -> None:
        """Write OUT/record.json."""
        write_json(out / RECORD, self.model_dump(mode="json"))


def read_record(out: Path) -> RunRecord | None:
    """The record of the run in `out`, or None. Raises RunError for a record that cannot be read."""
    try:
        return RunRecord.model_validate_json((out / RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValidationError as error:
        first = error.errors()[0]
        raise RunError(f"{out / RECORD}: {'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}") from error


def open_record(
    out: Path,
    verb: str,
    *,
    bound: Mapping[str, Any],
    free: Mapping[str, Any],
    software: Mapping[str, str],
    begun: bool,
) -> RunRecord:
    """The record with this call added, not yet written. `begun` is true if the folder holds the saved state of a run.

    A folder with a record also belongs to a run, which may have been killed before it saved its state. Raises
    BoundError when the folder's run has other fixed settings, and RunError when `steps` is below its number.
    """
    bound, free = plain(bound), plain(free)
    call = Call(at=datetime.now(UTC).isoformat(timespec="seconds"), software=dict(software))
    have = read_record(out)
    if have is None and not begun:
        return RunRecord(verb=verb, bound=bound, free=free, planned=free, calls=(call,))
    if have is None:
        raise RunError(f"{out} holds a run without {RECORD}, so its command and settings are not known; {ANEW}")
    if have.verb != verb:
        raise RunError(f"{out} holds a run of `cerberank train {have.verb}`; {ANEW}")
    Bound(out, bound).refuse_other_than(have.bound)
    if (free.get("steps") or 0) < (have.free.get("steps") or 0):
        raise RunError(f"{out} was begun with steps {have.free['steps']}, not {free['steps']}: steps may only grow")
    changed = {name: (have.free.get(name), free[name]) for name in free if have.free.get(name) != free[name]}
    call = call.model_copy(update={"changed": changed})
    return have.model_copy(update={"free": free, "calls": (*have.calls, call)})


def said_of_start(start: float | None, best: float) -> str:
    """A suffix of the best dev figure that tells the figure before the first step; empty if that was not measured.

    >>> said_of_start(61.25, 70.0), said_of_start(None, 70.0)
    (' (61.25 at step 0)', '')
    >>> said_of_start(71.5, 70.0)
    ' (71.50 at step 0, which is the best: training has made it worse)'
    """
    if start is None:
        return ""
    return f" ({start:.2f} at step 0{', which is the best: training has made it worse' if start > best else ''})"


def _without_names(value: Any) -> Any:
    """The value, in which lists of sorted digests replace digests by name."""
    if isinstance(value, dict):
        return {
            name: sorted(inner.values()) if name == SHA256 else _without_names(inner) for name, inner in value.items()
        }
    return [_without_names(each) for each in value] if isinstance(value, list) else value
