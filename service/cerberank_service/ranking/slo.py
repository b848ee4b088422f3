"""Which drop schedule a question gets when it should be answered within a target. Pure.

The checkpoint's tuned schedules say what each costs in accuracy, the engine predicts what each takes now: the
gentlest one that is in time is taken, or the fastest when none is. An explicit `drop_ratio` never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cerberank_models.config import TunedSchedule

Schedule = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A schedule, and what it is expected to cost."""

    schedule: Schedule
    loss: Mapping[str, float]
    """Points of each metric below the gentlest schedule of the set."""
    in_time: bool


def choose(tuned: Sequence[TunedSchedule], seconds: Callable[[Schedule], float], target: float) -> Choice:
    """The gentlest schedule whose predicted `seconds` keep to `target`; raises ValueError without schedules."""
    if not tuned:
        raise ValueError("there is no schedule to choose from")
    gentlest_first = sorted(tuned, key=lambda entry: -entry.cost)
    for entry in gentlest_first:
        if seconds(entry.schedule) <= target:
            return Choice(entry.schedule, loss_of(tuned, entry.schedule), True)
    return Choice(gentlest_first[-1].schedule, loss_of(tuned, gentlest_first[-1].schedule), False)


def loss_of(tuned: Sequence[TunedSchedule], schedule: Schedule) -> dict[str, float]:
    """Points that `schedule` is expected to lose against the gentlest of the set; empty when it is not in it."""
    known = {entry.schedule: entry.metrics for entry in tuned}
    if schedule not in known:
        return {}
    best = max(tuned, key=lambda entry: entry.cost).metrics
    own = known[schedule]
    reached = [name for name in best if name in own and not name.endswith(("_loss", "_loss_error"))]
    return {name: round(best[name] - own[name], 3) for name in reached}  # as `tune` rounds them
