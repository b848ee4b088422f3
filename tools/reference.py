"""Generates pages and a module: run `python -m tools.reference` after a command or a page was added or changed.

docs/commands/ and the functions of `cerberank.training` are generated from the definition of the command line;
docs/llms.txt, the list of all pages for language models, from the navigation in mkdocs.yml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from cerberank.cli import GROUPS, program

from cerberank_models.commands.values import is_recipe_key
from tools.process import ROOT
from tools.python_api import MODULE, training_module

DOCS = ROOT / "docs"
COMMANDS = DOCS / "commands"
LONG = MappingProxyType({"train distil": "distil", "train sweep": "sweep"})
"""Commands with pages of their own, and the names of these pages."""
HEADING = re.compile(r"^##+ cerberank (.+)$", re.MULTILINE)
INTRODUCTION = """\
# Commands

The commands of the program, as `cerberank COMMAND --help` shows them. `python -m tools.reference` writes these pages.
`cerberank --install-completion` completes words in your shell, and `cerberank --version` shows the version.

| group | |
|---|---|
"""


def command_pages() -> Mapping[Path, str]:
    """The text of each page: one for each group and each long command, and index.md for top-level commands."""
    groups = [name for name in GROUPS if name]
    pages = {"index": INTRODUCTION + "".join(f"| [{name}]({name}.md) | {GROUPS[name]} |\n" for name in groups)}
    parts = HEADING.split(program().generate_docs(recursive=True, include_hidden=False))
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        words = name.split()
        page = LONG.get(" ".join(words[:2]), words[0] if words[0] in groups else "index")
        level = len(words) - (page in LONG.values()) + (page == "index")
        # In the usage of commands two groups deep, cyclopts 5.4 includes the command line that started Python.
        usage = re.sub(r"^(cerberank [a-z -]+?) -m \S+", r"\1", body.strip(), flags=re.MULTILINE)
        pages[page] = f"{pages.get(page, '')}\n{'#' * level} cerberank {name}\n\n{usage}\n{_keys(words)}"
    return {COMMANDS / f"{page}.md": text.lstrip() for page, text in pages.items()}


def _keys(words: list[str]) -> str:
    """The settings of a command that only recipes have, with their meanings and defaults."""
    app = program()
    for word in words:
        app = app[word]
    every = app.assemble_argument_collection(parse_docstring=True) if app.default_command is not None else ()
    keys = [each for each in every if is_recipe_key(each)]
    if not keys:
        return ""
    lines = ["\n**Keys of recipes** ([no options](../recipes.md#your-own-recipe)):\n"]
    for key in keys:
        meaning = " ".join((key.parameter.help or "").split())
        name, default = key.name.removeprefix("--").replace("-", "_"), json.dumps(key.field_info.default)
        lines.append(f"* `{name}`: {meaning} *[default: {default}]*")
    return "\n".join(lines) + "\n"


def pages_of_the_site() -> Iterator[tuple[str, str]]:
    """The title of the top-level section and the file of each page in the navigation."""

    def walk(entries: list[Any], section: str) -> Iterator[tuple[str, str]]:
        for entry in entries:
            if isinstance(entry, str):
                yield section, entry
            else:
                ((title, inside),) = entry.items()
                yield from [(section, inside)] if isinstance(inside, str) else walk(inside, section or title)

    yield from walk(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"], "")


def llms_txt() -> str:
    """The titles and addresses of the site's pages, in the form of llmstxt.org."""
    lines = ["# Cerberank", "", "> An answer-ranking service, and the package that trains its models."]
    section = ""
    for title, name in pages_of_the_site():
        if not title:
            continue  # the home page
        if title != section:
            lines += ["", f"## {title}", ""]
            section = title
        heading = (DOCS / name).read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{heading}]({name.removesuffix('.md').removesuffix('/index')}/)")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all pages."""
    COMMANDS.mkdir(exist_ok=True)
    for path, page in command_pages().items():
        path.write_text(page)
    (DOCS / "llms.txt").write_text(llms_txt())
    MODULE.write_text(training_module())


if __name__ == "__main__":
    main()
