"""Holm's correction of several p-values: it bounds the probability of a single false rejection among all of them."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the given order; one below a level is significant at this level.

    The smallest of m p-values is multiplied by m, the next by m - 1 and so on; none is below one that it follows.

    >>> [round(value, 3) for value in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    adjusted, least = [1.0] * len(p_values), 0.0
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for before, place in enumerate(ascending):
        least = min(1.0, max(least, (len(p_values) - before) * p_values[place]))
        adjusted[place] = least
    return adjusted
