"""The site of docs/: it builds without a warning, shows every page, and its generated pages are up to date."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tools.reference import DOCS, ROOT, llms_txt, pages_of_the_site


@pytest.mark.skipif(find_spec("zensical") is None, reason="needs zensical")
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    """With every page, the index for the search and llms.txt; a link that leads nowhere would end the build."""
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, re.sub(r"\x1b\[[0-9;]*m", "", built.stdout)
    for _, name in pages_of_the_site():
        assert (tmp_path / "site" / name.removesuffix("index.md").removesuffix(".md") / "index.html").is_file(), name
    assert (tmp_path / "site" / "search.json").stat().st_size > 100_000
    assert (tmp_path / "site" / "llms.txt").read_text() == llms_txt()


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
