"""Docstrings, help and descriptions are noun or verb phrases of their own, as CONTRIBUTING.md asks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cerberank", "models", "service", "training", "tools", "tests", "examples")
NEGATED_NOUN = re.compile(r"(?<!there )\b(?:is|are|was|were) no (?!longer|more|better|worse|less)", re.IGNORECASE)
HEADLESS = re.compile(r"(What|Whether|How|Where|Of|That|When|Which|Why|In which|By which|With which)\b", re.IGNORECASE)
DESCRIBED = {"description", "help", "summary", "documentation"}


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The docstrings of modules, classes, functions and attributes, their options' help, and described fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                value = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.lineno, value.value
                    _, _, options = value.value.partition("Args:\n")
                    for option in re.findall(r"^\s+\w+: (.*)", options, re.MULTILINE):
                        yield value.lineno, option
        if isinstance(node, ast.keyword) and node.arg in DESCRIBED and isinstance(node.value, ast.Constant):
            yield node.value.lineno, str(node.value.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_begin_with_a_noun_or_a_verb(package: str) -> None:
    headless = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip()[:80]}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if HEADLESS.match(text.strip())
    ]
    assert headless == []


@pytest.mark.parametrize("package", [*PACKAGES, "docs"])
def test_nothing_is_said_to_be_no_such_thing(package: str) -> None:
    """Such a sentence is read twice: "is no multiple" is "is not a multiple"."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in sorted((ROOT / package).rglob("*"))
        if path.suffix in (".py", ".md", ".html", ".js", ".toml", ".yml", ".yaml") and path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if NEGATED_NOUN.search(line)
    ]
    assert found == []
