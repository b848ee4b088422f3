"""The options that several commands have."""

from __future__ import annotations

from typing import Any

import pytest
from cyclopts import CycloptsError

from cerberank_models.commands.options import (
    OWN,
    BackendChoice,
    BackendOptions,
    Ratios,
    Windows,
    check_device,
    one_or_all,
)
from cerberank_models.commands.values import Count, Integers, arguments_of


def show(
    *,
    backend: BackendOptions = OWN,
    exits: Integers = (1,),
    drop_ratio: Ratios | None = None,
    windows: Windows = None,
    trials: Count = 1,
) -> None:
    """A command with these options."""


def parsed(*words: str) -> dict[str, Any]:
    """The values that the command gets, without defaults."""
    return arguments_of(show, words)


def test_the_device_decides_what_is_not_named() -> None:
    """A GPU alone is enough for half precision in torch; what is named is taken."""

    def chosen(*words: str) -> BackendChoice:
        backend: BackendOptions = parsed(*words)["backend"]
        return backend.chosen()

    assert chosen("--device", "cpu") == BackendChoice(kind="onnx", precision="int8", device="cpu")
    assert chosen("--device", "cuda:1") == BackendChoice(kind="torch", precision="fp16", device="cuda:1")
    assert chosen("--device", "cpu", "--backend", "torch") == BackendChoice(
        kind="torch", precision="fp32", device="cpu"
    )
    named = chosen("--backend", "torch", "--precision", "bf16", "--device", "cuda")
    assert named == BackendChoice(kind="torch", precision="bf16", device="cuda")
    with pytest.raises(ValueError, match="torch has no precision 'int8', only fp32, bf16, fp16"):
        chosen("--backend", "torch", "--precision", "int8")


def test_lists_stand_between_commas() -> None:
    """An empty value is an empty list; without the option there is no value, and the default stays."""
    assert parsed("--exits", "2,4", "--drop-ratio", "0.3,0.2", "--windows", "mean") == {
        "exits": (2, 4),
        "drop_ratio": (0.3, 0.2),
        "windows": "mean",
    }
    assert parsed("--exits", "")["exits"] == ()
    assert parsed() == {}
    assert [one_or_all(value) for value in (None, (0.3,), (0.3, 0.2))] == [None, 0.3, (0.3, 0.2)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--exits", "2,x"), "such as 2,4, not '2,x'"),
        (("--drop-ratio", "1.5"), "at least 0 and below 1"),
        (("--windows", "all"), "Choose from"),
        (("--trials", "2.5"), "takes a whole number, not '2.5'"),
        (("--trials", "0"), "Must be >= 1"),
    ],
)
def test_a_wrong_value_is_told_with_a_right_one(words: tuple[str, ...], message: str) -> None:
    """The message has the option's form."""
    with pytest.raises(CycloptsError, match=message):
        parsed(*words)


@pytest.mark.parametrize("device", ["quantum", "cuda:99", "cpu,cuda"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    """Before data are read; torch's first line says why."""
    check_device("cpu")
    with pytest.raises(ValueError, match=f"^--device {device} cannot be used: [^\n]+$"):
        check_device(device)
