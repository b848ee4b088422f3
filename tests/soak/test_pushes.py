"""A short form of `make soak`."""

from __future__ import annotations

from pathlib import Path

from tools.pushes import BAD, Soak


def test_good_and_bad_pushes_under_load_fail_no_request(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Every answer comes from a version that was ready; no kind of bad push ever serves."""
    soak = Soak(
        checkpoint=tiny_checkpoint, folder=tmp_path, seconds=9.0, every=1.0, rate=20.0, candidates=10, outage=1.0
    )
    report = soak.run()
    assert report.requests > 20
    assert (report.failed, report.foreign, report.unexplained) == (0, 0, [])
    assert report.rejected == dict.fromkeys(BAD, 1)
    assert report.swaps == 5
    assert len(report.rollback) == 3
