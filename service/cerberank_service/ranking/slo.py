"""Which tuned drop schedule a question gets when it should be answered within a target. Pure.

The checkpoint's tuned schedules say what each costs in accuracy, the engine predicts what each takes now: the
gentlest one that is in time is taken, or the fastest when none is. An explicit `drop_ratio` never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cerberank_models.config import RankerConfig, TunedSchedule
from cerberank_models.drop import DropPolicy


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy, and what it is expected to cost."""

    policy: DropPolicy
    loss: Mapping[str, float]
    """Points of each metric below the gentlest schedule of the set."""
    in_time: bool


def choose(config: RankerConfig, keep: int, seconds: Callable[[DropPolicy], float], target: float) -> Choice:
    """The gentlest of the tuned schedules whose predicted `seconds` keep to `target`, or the fastest.

    At least `keep` candidates stay alive. Raises ValueError where no schedule was tuned.
    """
    tuned = config.tuned_schedules
    if not tuned:
        raise ValueError("there is no schedule to choose from")
    for entry in sorted(tuned, key=lambda entry: -entry.cost):
        policy = config.drop_policy(default=entry.schedule, keep=keep)
        if in_time := seconds(policy) <= target:
            break
    return Choice(policy, loss_of(tuned, policy.ratios), in_time)


def loss_of(tuned: Sequence[TunedSchedule], ratios: tuple[float, ...]) -> dict[str, float]:
    """Points that a schedule is expected to lose against the gentlest of the set; empty when it is not in it."""
    known = {entry.schedule: entry.metrics for entry in tuned}
    if ratios not in known:
        return {}
    best = max(tuned, key=lambda entry: entry.cost).metrics
    own = known[ratios]
    reached = [name for name in best if name in own and not name.endswith(("_loss", "_loss_error"))]
    return {name: round(best[name] - own[name], 3) for name in reached}  # as `tune` rounds them
