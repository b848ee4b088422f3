"""The teacher of each head: the strategies that CERBERUS compares (section 5, table 3)."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["hard", "single", "kd_sum", "kd_rr", "single_all_heads", "hydra", "cerberus"]


def lessons(strategy: Strategy, *, step: int, heads: int, teachers: int) -> tuple[tuple[int, int], ...]:
    """The (head, teacher) pairs whose losses `L_KD` are summed in `step`; none for `hard`.

    >>> lessons("kd_sum", step=7, heads=1, teachers=3)
    ((0, 0), (0, 1), (0, 2))
    >>> [lessons("kd_rr", step=step, heads=1, teachers=3) for step in (0, 1, 3)]
    [((0, 0),), ((0, 1),), ((0, 0),)]
    >>> lessons("single_all_heads", step=0, heads=3, teachers=1)
    ((0, 0), (1, 0), (2, 0))
    >>> lessons("cerberus", step=0, heads=3, teachers=3) == lessons("hydra", step=0, heads=3, teachers=3)
    True
    >>> lessons("cerberus", step=0, heads=3, teachers=3)
    ((0, 0), (1, 1), (2, 2))
    """
    match strategy:
        case "hard":
            return ()
        case "single":
            return ((0, 0),)
        case "kd_sum":
            return tuple((0, teacher) for teacher in range(teachers))
        case "kd_rr":
            return ((0, step % teachers),)
        case "single_all_heads":
            return tuple((head, 0) for head in range(heads))
        case "hydra" | "cerberus":
            return tuple((head, head) for head in range(heads))


def check_strategy(strategy: Strategy, *, heads: int, teachers: int) -> None:
    """Raise ValueError when the strategy does not fit these numbers of heads and teachers.

    `hydra` needs teachers of one family with different seeds, and `cerberus` needs teachers of different families. This
    is not checked.
    """
    wanted: dict[Strategy, tuple[bool, str]] = {
        "hard": (teachers == 0, "no teacher"),
        "single": (heads == 1 and teachers == 1, "one head and one teacher"),
        "kd_sum": (heads == 1 and teachers >= 2, "one head and two or more teachers"),
        "kd_rr": (heads == 1 and teachers >= 2, "one head and two or more teachers"),
        "single_all_heads": (teachers == 1, "one teacher"),
        "hydra": (teachers == heads, "as many teachers as heads"),
        "cerberus": (teachers == heads, "as many teachers as heads"),
    }
    fits, needs = wanted[strategy]
    if not fits:
        labels = "" if teachers else "; --teacher CACHE gives one, and --strategy hard learns from the labels alone"
        raise ValueError(
            f"strategy {strategy!r} needs {needs}; there are {heads} head(s) and {teachers} teacher(s){labels}"
        )
