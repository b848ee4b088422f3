"""docs/papers.md names files, symbols, verbs and options that exist."""

from __future__ import annotations

import ast
import re
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from cerberank.cli import COMMANDS, main

from cerberank_benchmarks.__main__ import main as benchmarks
from cerberank_training.commands.presets import presets

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers.md"
HEADING = "## Hours and memory on one H200, counted"
COLUMNS = ["item", "where", "command", "state", "difference"]
BENCHMARKS = "cerberank_benchmarks"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
STATES = ("run", "tiny", "not run", "absent")


def rows() -> list[list[str]]:
    tables = PAGE.read_text().partition(HEADING)[0]
    lines = [line for line in tables.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells.count(COLUMNS) == 6, "a table a paper, and one for evaluation"
    return [row for row in cells if row != COLUMNS and set(row) != {"---"}]


@cache
def symbols(path: Path) -> set[str]:
    """Functions and classes of a module, and the methods and fields of its classes as `Class.name`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                members = [each.name for each in body if isinstance(each, ast.FunctionDef)]
                fields = [each.target for each in body if isinstance(each, ast.AnnAssign)]
                names = [*members, *(field.id for field in fields if isinstance(field, ast.Name))]
                found |= {name, *(f"{name}.{member}" for member in names)}
    return found


@cache
def options(verb: str, arguments: tuple[str, ...]) -> str:
    """The help of a verb; `arguments` choose whose where it has several."""
    program, words = (benchmarks, []) if verb == BENCHMARKS else (main, verb.split())
    with redirect_stdout(StringIO()) as text:
        try:
            code = program([*words, *arguments, "--help"])
        except SystemExit as ended:  # argparse
            code = ended.code
    assert code == 0
    return re.sub(r"[\s│]+", " ", text.getvalue())


@cache
def all_options() -> set[str]:
    """The options of all commands, from the pages that are made of their help."""
    pages = (ROOT / "docs" / "commands").glob("*.md")
    return {word for page in pages for word in OPTION.findall(page.read_text())}


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row[0])[:40])
def test_a_row_names_what_exists(row: list[str]) -> None:
    """Its files and symbols are in the code, its verb and options in the program, its state is one of four."""
    item, where, command, state, difference = row
    assert item
    places = re.findall(r"`([^`]+)`", where)
    assert places
    for place in places:
        path, _, symbol = place.partition("::")
        assert (ROOT / path).is_file(), place
        assert not symbol or symbol in symbols(ROOT / path), place
    (call,) = re.findall(r"`(?:cerberank|python -m) ([^`]+)`", command)
    words = call.split()
    size = next(size for size in (1, 2) if " ".join(words[:size]) in {BENCHMARKS, *(each.name for each in COMMANDS)})
    verb, words = " ".join(words[:size]), words[size:]
    chosen = tuple(words[:1]) if verb in {BENCHMARKS, "train sweep"} else ()
    text = options(verb, chosen)
    previous = ""
    for word in words[len(chosen) :]:
        if word.startswith("--"):
            assert re.search(rf"{word}\b", text), f"{verb} has no {word}"
        else:
            lines = " ".join(re.findall(rf"{previous}\b(.*?)(?= --[a-z]|$)", text))
            named = presets() if previous == "--recipe" else re.findall(r"[\w-]+", lines)
            assert word in named, f"{previous} has no choice {word}"
        previous = word
    assert any(re.search(rf"(^|: |; ){each}\b", state) for each in STATES), state
    named_elsewhere = {word for span in re.findall(r"`([^`]+)`", state + difference) for word in OPTION.findall(span)}
    assert named_elsewhere <= all_options(), named_elsewhere - all_options()
