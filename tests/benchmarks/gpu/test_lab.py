from __future__ import annotations

from pathlib import Path

from cerberank_benchmarks.gpu.lab import Lab, Sizes, lab_for


class Clock:
    """A clock that the measured functions advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> None:
        self.now += seconds


def made(tmp_path: Path, clock: Clock, **sizes: float) -> Lab:
    return lab_for("cpu", sizes=Sizes(**sizes), scratch=tmp_path, tokenizer=tmp_path / "none", clock=clock)


def test_figures_are_medians_without_the_warm_up(tmp_path: Path) -> None:
    """The first runs are slow and do not count; of the others one outlier does not count either."""
    clock = Clock()
    durations = iter([9.0, 9.0, 1.0, 1.0, 7.0])
    lab = made(tmp_path, clock, warm_up=2, rounds=3, figure_seconds=100)
    assert lab.seconds(lambda: clock.takes(next(durations))) == 1.0


def test_a_slow_figure_takes_three_rounds(tmp_path: Path) -> None:
    """Rounds end when the time for a figure is over, after three; compared functions run equally often."""
    clock = Clock()
    lab, runs = made(tmp_path, clock, warm_up=0, rounds=20, figure_seconds=0.5), {"one": 0, "two": 0}

    def run(name: str) -> None:
        runs[name] += 1
        clock.takes(1.0 if name == "one" else 2.0)

    assert lab.compared({name: lambda n=name: run(n) for name in runs}) == {"one": 1.0, "two": 2.0}
    assert runs == {"one": 3, "two": 3}
