"""The site of docs/ builds without a warning; `test_docs.py` has what needs no build."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.reference import DOCS, ROOT, llms_txt, pages_of_the_site


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
