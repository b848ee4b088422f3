"""The documentation tells the truth where a machine can check it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cerberank.cli import COMMANDS, GROUPS
from tools.reference import DOCS, llms_txt, pages_of_the_site

from cerberank_models import __version__
from cerberank_models.checkpoint.bundled import default_checkpoint
from cerberank_service.settings.environment import markdown_table
from cerberank_service.telemetry import series
from cerberank_training.data import read_questions

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / folder / "README.md" for folder in ("deploy", "examples")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = ("cerberank", "models", "service", "training", "tests", "tools", "deploy", "examples", "requirements")


def test_the_settings_table_is_the_settings_class() -> None:
    """docs/settings.md holds the output of `cerberank settings --markdown`."""
    page = (ROOT / "docs" / "settings.md").read_text()
    table = page.split("<!-- settings:begin -->")[1].split("<!-- settings:end -->")[0]
    assert table.strip() == markdown_table()


def test_the_metrics_table_is_what_the_service_has() -> None:
    """docs/metrics.md holds what `telemetry.series` prints; each series says what it means."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    table = page.split("<!-- metrics:begin -->")[1].split("<!-- metrics:end -->")[0]
    assert table.strip() == series.markdown_table()
    assert not re.findall(r"\| *\|$", table, re.MULTILINE)


def test_the_figures_of_the_bundled_model_are_its_card_s() -> None:
    """MAP and P@1 on both sets without drops, in README.md (with the version) and docs/performance.md."""
    folder = default_checkpoint()
    version = json.loads((folder / "manifest.json").read_text())["version"]
    row = r"^\| final \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|.*\| [\d.-]+ \(\d+\) \|"
    figures = re.findall(row, (folder / "README.md").read_text(), re.MULTILINE)
    assert len(figures) == 2
    block = (ROOT / "README.md").read_text().split("<!-- figures:begin -->")[1].split("<!-- figures:end -->")[0]
    (row,) = re.findall(rf"^\| cerberank-mini {version}, .*$", block, re.MULTILINE)
    assert re.findall(r"\| ([\d.]+) \| ([\d.]+) (?=\|)", row) == figures
    page = (ROOT / "docs" / "performance.md").read_text()
    rows = re.findall(r"^\| (?:WikiQA|squad-as2) test.*? \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE)
    assert rows == figures


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    """The example data are in no page of the site."""
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {"example/README.md"}
    assert {name for _, name in pages_of_the_site()} == pages


def test_links_stay_within_the_site() -> None:
    """The site has only docs/: other files are named as code."""
    for path in DOCS.rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).resolve().is_relative_to(DOCS), f"{path.name}: {target}"


def test_the_list_for_language_models_is_up_to_date() -> None:
    """`python -m tools.reference` writes it."""
    assert (DOCS / "llms.txt").read_text() == llms_txt()


def test_make_targets_of_the_readme_exist() -> None:
    """Every `make` verb is a target."""
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for verb in set(re.findall(r"\bmake ([a-z-]+)", readme)) - {"it"}:
        assert f"\n{verb}:" in makefile, verb


COMMANDS_OF = re.compile(r"(?:^|[`\s]|bin/)cerberank(?: cerberank)?((?: [a-z][a-z-]*){1,2})", re.MULTILINE)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "Makefile"], ids=lambda page: page.name)
def test_commands_of_the_pages_exist(page: Path) -> None:
    """In code blocks and between backquotes: each call is a command, or a group, of the program."""
    known = {command.name for command in COMMANDS} | set(GROUPS)
    text = page.read_text()
    code = text if page.suffix != ".md" else "\n".join(re.findall(r"^```\w*\n.*?^```|`[^`\n]+`", text, re.M | re.S))
    for words in map(str.split, COMMANDS_OF.findall(code)):
        assert words[0] in known or " ".join(words) in known, f"cerberank {' '.join(words)}"
        assert words[0] not in GROUPS or len(words) == 1 or " ".join(words) in known, f"cerberank {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    """The end of a path is enough, such as `engine/test_admission.py`; NAME and `...` stand for several."""
    modules = [f"/{path.relative_to(ROOT)}" for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    for name in re.findall(r"(?<![\w./-])[\w./-]+\.py\b", page.read_text()):
        assert "NAME" in name or "..." in name or any(path.endswith(f"/{name}") for path in modules), name


TESTS_OF = re.compile(r"`((?:[\w./]*test_\w+\.py ?)+)-k (\w+)`")


def test_tests_that_a_page_chooses_exist() -> None:
    """With `-k` as pytest reads it; paths without a folder of tests are in tests/service."""
    for files, word in (found for page in PAGES for found in TESTS_OF.findall(page.read_text())):
        paths = [ROOT / ("" if file.startswith("tests/") else "tests/service") / file for file in files.split()]
        names = [name for path in paths for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)]
        assert any(word in name for name in names), f"{files}-k {word}"


def test_the_example_data_are_what_trainers_begin_with() -> None:
    """Every question has six candidates and one positive; train and dev have no text in common."""
    page = (ROOT / "docs" / "start-trainer.md").read_text()
    texts: dict[str, set[str]] = {}
    number = 0
    for part in ("train", "dev"):
        spec = f"jsonl:docs/example/{part}.jsonl"
        assert f"`{spec}`" in page
        questions = list(read_questions(f"jsonl:{ROOT / spec.removeprefix('jsonl:')}"))
        number += len(questions)
        assert all(sorted(each.labels) == [0, 0, 0, 0, 0, 1] for each in questions)
        texts[part] = {row.candidate.text for each in questions for row in each.candidates}
    assert f"{number} questions" in page
    assert not texts["train"] & texts["dev"]


def test_the_changelog_begins_with_the_unreleased_and_names_the_version() -> None:
    """The headings of Keep a Changelog, newest first; the citation has the version of the package."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    assert f"[{__version__}]" in headings[1]
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
