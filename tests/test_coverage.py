from __future__ import annotations

import pytest
from tools.coverage import by_package, fallen


def test_coverage_is_counted_by_package() -> None:
    """All statements of a package count alike, whatever their file."""
    files = {
        "models/cerberank_models/a.py": (9, 10),
        "models/cerberank_models/rooms/b.py": (0, 10),
        "cerberank/c.py": (5, 5),
    }
    assert by_package(files) == {"cerberank": 100.0, "cerberank_models": 45.0}


@pytest.mark.parametrize(("percent", "lost"), [(91.0, []), (89.0, []), (88.9, ["a"])])
def test_a_fall_of_more_than_a_point_is_named(percent: float, lost: list[str]) -> None:
    """A package that is not measured at all has fallen, and a new one cannot."""
    assert fallen({"a": percent, "new": 1.0}, {"a": 90.0}) == lost
    assert fallen({"new": 1.0}, {"a": 90.0}) == ["a"]
