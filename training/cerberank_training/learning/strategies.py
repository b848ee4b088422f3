"""The teachers of each head: the strategies that CERBERUS compares (section 5, table 3).

A strategy follows from the numbers of heads and teachers. Only one head with several teachers leaves a choice.
"""

from __future__ import annotations

from typing import Literal

Choice = Literal["kd_sum", "kd_rr", "kd_mean"]
INFERRED = ("hard", "single", "single_all_heads", "cerberus", "hydra")
"""The strategies that follow from the numbers of heads and teachers; earlier versions took their names."""


def lessons(choice: Choice | None, *, step: int, heads: int, teachers: int) -> tuple[tuple[int, int], ...]:
    """The (head, teacher) pairs whose losses `L_KD` are summed in `step`; none without teachers.

    The mean of several teachers (`kd_mean`) is one teacher here.

    >>> lessons("kd_sum", step=7, heads=1, teachers=3)
    ((0, 0), (0, 1), (0, 2))
    >>> [lessons("kd_rr", step=step, heads=1, teachers=3) for step in (0, 1, 3)]
    [((0, 0),), ((0, 1),), ((0, 0),)]
    >>> lessons(None, step=0, heads=3, teachers=1)
    ((0, 0), (1, 0), (2, 0))
    >>> lessons(None, step=0, heads=3, teachers=3)
    ((0, 0), (1, 1), (2, 2))
    """
    if teachers <= 1:
        return tuple((head, 0) for head in range(heads * teachers))
    if heads == 1:
        return ((0, step % teachers),) if choice == "kd_rr" else tuple((0, teacher) for teacher in range(teachers))
    return tuple((head, head) for head in range(heads))


def strategy_of(choice: Choice | None, *, heads: int, teachers: int) -> str:
    """The name of the strategy in the paper's table. Raises ValueError when the numbers or the choice do not fit.

    A student whose teachers are of one family, with other seeds, is the paper's Hydra.

    >>> [strategy_of(None, heads=heads, teachers=teachers) for heads, teachers in ((3, 0), (1, 1), (3, 1), (3, 3))]
    ['hard', 'single', 'single_all_heads', 'cerberus']
    """
    counts = f"there are {heads} head(s) and {teachers} teacher(s)"
    if choice is not None and (heads != 1 or teachers < 2):
        raise ValueError(f"--strategy {choice} is for one head with several teachers; {counts}")
    if teachers == 0:
        return "hard"
    if teachers == 1 and heads:
        return "single" if heads == 1 else "single_all_heads"
    if heads == 1:
        if choice is None:
            raise ValueError(
                f"{counts}: give --strategy kd_sum, the sum of their losses, kd_rr, one of them a step in turn, or "
                "kd_mean, the loss of their mean"
            )
        return choice
    if teachers != heads:
        raise ValueError(f"{counts}: give one --teacher for all heads, or one for each")
    return "cerberus"
