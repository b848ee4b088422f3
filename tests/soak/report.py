"""The observations of a soak, and whether they keep the promises."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Report:
    """The observations, in seconds unless the name says otherwise."""

    requests: int = 0
    failed: int = 0
    foreign: int = 0
    """Answers of a version that was not ready, or in another order than the checkpoint gives."""
    swaps: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)
    """Bad pushes that were not rejected for their own reason."""
    p99_ms: float = 0.0
    p99_ms_while_pushed: float = 0.0
    push_to_answer: list[float] = field(default_factory=list)
    rollback: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    """After each swap, when the version before last is gone."""


def verdicts(report: Report) -> dict[str, bool]:
    """What issue 5 asks for."""
    memory = report.megabytes
    return {
        "no failed request": report.failed == 0,
        "no answer of a version that was not ready": report.foreign == 0,
        "every bad push rejected for its own reason": not report.unexplained,
        "p99 while pushed at most 1.25 times": report.p99_ms_while_pushed <= 1.25 * report.p99_ms,
        "memory after the last swap within 5 % of that after the fifth": len(memory) > 5
        and memory[-1] <= 1.05 * memory[4],
        "push to first answer at most 15 s": max(report.push_to_answer, default=99.0) <= 15.0,
        "rollback at most 1 s": max(report.rollback, default=99.0) <= 1.0,
    }
