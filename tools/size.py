"""Counts lines of code by package: `python -m tools.size [CHECKOUT]`.

A line counts if it holds code. Blank lines, comments, imports, and the docstrings of modules, classes and functions do
not count; the strings that describe an attribute do.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

PACKAGES = {
    "models": ("models",),
    "service": ("service",),
    "training": ("training/cerberank_training",),
    "papers": ("training/cerberank_papers",),
    "benchmarks": ("training/cerberank_benchmarks",),
    "tools": ("tools",),
    "face, examples, deploy": ("cerberank", "examples", "deploy", "requirements"),
}
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source: str) -> int:
    """The number of lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def count(root: Path, folders: tuple[str, ...]) -> int:
    """Lines of code of all modules below these folders of a checkout."""
    modules = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return sum(lines_of_code(path.read_text(encoding="utf-8")) for path in modules)


def main() -> None:
    """Print a line for each package of a checkout, by default this one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[1]
    counted = {name: count(root, folders) for name, folders in PACKAGES.items()}
    for name, lines in (counted | {"production": sum(counted.values()), "tests": count(root, ("tests",))}).items():
        sys.stdout.write(f"{name:>24} {lines:>7,}\n")


if __name__ == "__main__":
    main()
