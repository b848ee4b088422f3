"""The comparison of the OpenVINO experiment; the library itself is not installed for tests."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cerberank_benchmarks.pieces.openvino import OpenVinoNeededError, agreement, padded_shape, run
from cerberank_benchmarks.settings import BenchmarkSettings


def test_agreement_by_hand() -> None:
    """Log odds of 0.5 and 0.5 against 0 and log 3; the first candidate is the same in one question of two."""
    even, other = np.asarray([0.5, 0.5]), np.asarray([0.5, 0.75])
    seen = agreement([even, other], [other, other])
    assert seen["difference"] == pytest.approx(np.sqrt(np.log(3) ** 2 / 4))
    assert seen["same first, %"] == 50.0


def test_few_shapes_by_hand() -> None:
    """Five pairs of 48 tokens fit into 256; batches of up to 1,024 tokens have few shapes, and every one has room."""
    assert padded_shape(1, 41) == (5, 48)
    assert padded_shape(21, 48) == (25, 48)
    batches = [(pairs, length) for length in range(1, 129) for pairs in range(1, 1024 // length + 1)]
    assert all(padded_shape(*batch) >= batch and padded_shape(*batch)[1] >= batch[1] for batch in batches)
    assert len({padded_shape(*batch) for batch in batches}) < len(batches) / 10


@pytest.mark.skipif(find_spec("openvino") is not None, reason="openvino is installed")
def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    """Without the libraries, which are not dependencies, the error says what to install."""
    with pytest.raises(OpenVinoNeededError, match="install openvino"):
        run(BenchmarkSettings(), tmp_path)
