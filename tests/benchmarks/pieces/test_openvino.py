"""The comparison of the OpenVINO experiment; the library itself is not installed for tests."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cerberank_benchmarks.pieces.openvino import OpenVinoNeededError, agreement, run
from cerberank_benchmarks.settings import BenchmarkSettings


def test_agreement_by_hand() -> None:
    """Log odds of 0.5 and 0.5 against 0 and log 3; the first candidate is the same in one question of two."""
    even, other = np.asarray([0.5, 0.5]), np.asarray([0.5, 0.75])
    seen = agreement([even, other], [other, other])
    assert seen["difference"] == pytest.approx(np.sqrt(np.log(3) ** 2 / 4))
    assert seen["same first, %"] == 50.0


@pytest.mark.skipif(find_spec("openvino") is not None, reason="openvino is installed")
def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    """Without the libraries, which are not dependencies, the error says what to install."""
    with pytest.raises(OpenVinoNeededError, match="install openvino"):
        run(BenchmarkSettings(), tmp_path)
