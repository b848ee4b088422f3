from __future__ import annotations

from pathlib import Path

import pytest

from cerberank_benchmarks.clients.server import ServerError, cerberank_server


def test_a_server_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    """It gets a second where the caller has none left; a service without a store is never ready."""
    looks = []

    def remaining() -> float:
        looks.append(True)
        return -1.0

    with (
        pytest.raises(ServerError, match="did not become ready"),
        cerberank_server(None, tmp_path, {"store": str(tmp_path / "none"), "log_level": "error"}, remaining=remaining),
    ):
        pass
    assert len(looks) == 2  # for the start and for the end
