"""Holm's correction against its definition: hypotheses are rejected in turn until the first one that is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cerberank_training.evaluation.systems.holm import holm


def rejected(p_values: list[float], level: float) -> set[int]:
    """The step-down procedure itself."""
    found = set[int]()
    for before, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[place] * (len(p_values) - before) >= level:
            break
        found.add(place)
    return found


@given(p_values=st.lists(st.floats(0, 1), max_size=8), level=st.sampled_from([0.01, 0.05, 0.3, 1.0]))
def test_adjusted_values_reject_what_the_procedure_rejects(p_values: list[float], level: float) -> None:
    """At any level; adjusted values are probabilities, and never below the given ones."""
    adjusted = holm(p_values)
    assert {place for place, value in enumerate(adjusted) if value < level} == rejected(p_values, level)
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
