from __future__ import annotations

from pathlib import Path

import pytest
import torch

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


def test_every_round_is_known(tmp_path: Path) -> None:
    """For a mean and a deviation beside the median; the rounds of the warm-up are left out."""
    clock = Clock()
    durations = iter([9.0, 1.0, 2.0, 6.0])
    lab = made(tmp_path, clock, warm_up=1, rounds=3, figure_seconds=100)
    assert lab.times({"one": lambda: clock.takes(next(durations))}) == {"one": [1.0, 2.0, 6.0]}


def test_many_calls_between_two_looks_count_one_each(tmp_path: Path) -> None:
    """`inner` calls are timed together and divided."""
    clock = Clock()
    lab = made(tmp_path, clock, warm_up=0, rounds=1)
    assert lab.seconds(lambda: clock.takes(0.25), inner=4) == 0.25


def test_a_processor_gets_stand_ins(tmp_path: Path) -> None:
    """Kernel and capture on a processor; on a GPU None, which means the device's own."""
    here, gpu = (
        made(tmp_path, Clock()),
        Lab(device="cuda", precision="fp16", sizes=Sizes(), scratch=tmp_path, tokenizer=tmp_path),
    )
    assert here.kernel is not None
    assert here.capture is not None
    assert (gpu.kernel, gpu.capture) == (None, None)
    assert (here.precision, lab_for("cuda", sizes=Sizes(), scratch=tmp_path, tokenizer=tmp_path).precision) == (
        "fp32",
        "fp16",
    )
    assert torch.equal(here.random(3, seed=1), here.random(3, seed=1))
    with pytest.raises(RuntimeError, match="no variable-length attention"):
        lab_for("cpu", sizes=Sizes(), scratch=tmp_path, tokenizer=tmp_path, kernel=None).attention(torch.float16, 64)
