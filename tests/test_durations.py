from __future__ import annotations

from tools.durations import grown


def test_a_file_that_takes_half_as_long_again_is_named() -> None:
    """A machine on which all files do is slower. A file that is not recorded took nothing."""
    recorded = {"a": 10.0, "b": 10.0, "c": 10.0}
    assert grown({"a": 20.0, "b": 20.0, "c": 20.0}, recorded) == {}
    assert list(grown({"a": 20.0, "b": 20.0, "c": 80.0, "new": 3.0, "small": 1.0}, recorded)) == ["c", "new"]
