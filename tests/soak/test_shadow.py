"""A short form of `python -m tools.shadow`, without its times."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.shadow import ShadowSoak

pytestmark = pytest.mark.slow


def test_a_shadow_s_figures_are_those_of_both_checkpoints_offline(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """On real graphs flips, overlap and shift are those computed offline, and no request fails."""

    def measure(soak: ShadowSoak) -> None:
        beside = soak.answers(20.0, 2.0, mirrored=True)
        assert {answer.status for answer in beside} == {200}
        told, true = soak.told_and_true()
        assert told.near(true), (told, true)
        assert true.overlap < 1.0
        assert true.shift > 0.0

    ShadowSoak(checkpoint=tiny_checkpoint, folder=tmp_path, candidates=8).run(measure)
