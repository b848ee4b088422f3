"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT / "cerberank", ROOT / "tools", *sorted(ROOT.glob("*/cerberank_*")))


def with_examples(package: Path) -> list[str]:
    """The names of a package's modules that have an example."""
    paths = [path for path in sorted(package.rglob("*.py")) if ">>> " in path.read_text()]
    return [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in paths]


@pytest.mark.parametrize("module", [module for package in PACKAGES for module in with_examples(package)])
def test_the_examples_hold(module: str) -> None:
    """Whoever reads a function is told by them what it gives."""
    outcome = doctest.testmod(import_module(module.removesuffix(".__init__")))
    assert (outcome.failed, outcome.attempted > 0) == (0, True)
