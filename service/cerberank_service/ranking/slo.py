"""Chooses the tuned drop schedule of a question with a latency target.

The checkpoint states the accuracy of each tuned schedule, and the engine predicts its current latency. Among the
schedules that meet the target, the most accurate one is chosen, which is the one that drops least. If none meets it,
the fastest one is chosen. Calls with an explicit `drop_ratio` are not handled here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cerberank_models.config import RankerConfig, TunedSchedule
from cerberank_models.drop import DropPolicy


def choose(config: RankerConfig, keep: int, seconds: Callable[[DropPolicy], float], target: float) -> DropPolicy:
    """The most accurate tuned schedule whose predicted `seconds` are at most `target`, or the fastest one.

    At least `keep` candidates survive. Raises ValueError if no schedule was tuned.
    """
    tuned = config.tuned_schedules
    if not tuned:
        raise ValueError("there is no schedule to choose from")
    for entry in sorted(tuned, key=lambda entry: -entry.cost):
        policy = config.drop_policy(default=entry.schedule, keep=keep)
        if seconds(policy) <= target:
            break
    return policy


def loss_of(tuned: Sequence[TunedSchedule], ratios: tuple[float, ...]) -> dict[str, float]:
    """Points of each metric that a schedule loses against the most accurate tuned one; empty if it was not tuned."""
    known = {entry.schedule: entry.metrics for entry in tuned}
    if ratios not in known:
        return {}
    best = max(tuned, key=lambda entry: entry.cost).metrics
    own = known[ratios]
    reached = [name for name in best if name in own and not name.endswith(("_loss", "_loss_error"))]
    return {name: round(best[name] - own[name], 3) for name in reached}  # as `tune` rounds them
