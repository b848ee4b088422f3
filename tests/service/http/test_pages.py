from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cerberank_service.http.pages import PAGES, STATIC


@pytest.mark.parametrize("path", PAGES)
def test_a_page_allows_only_its_own_scripts_and_styles(client: TestClient, path: str) -> None:
    """Nothing inline, nothing from elsewhere, no framing."""
    page = client.get(path)
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
    assert policy["img-src"] == "'self' data:"  # Swagger UI's icons


@pytest.mark.parametrize("path", PAGES)
def test_what_a_page_refers_to_is_served(client: TestClient, path: str) -> None:
    """Relative addresses, so that a prefix does no harm; scripts' imports too."""
    found = re.findall(r'(?:src|href)="([^"#]+)"', client.get(path).text)
    assert any(target.endswith(".js") for target in found)
    for target in found:
        assert not re.match(r"/|\w+:", target), target
        asset = client.get("/" + target.removeprefix("./"))
        assert asset.status_code == 200
        for imported in re.findall(r'from "\./([^"]+)"', asset.text if target.endswith(".js") else ""):
            script = client.get(f"/assets/{imported}")
            assert script.headers["Content-Type"].startswith("text/javascript")
            assert script.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("page", sorted(STATIC.glob("*.html")), ids=lambda page: page.name)
def test_no_page_has_inline_code(page: Path) -> None:
    """No script without a source, no style attribute or element, no handler attribute."""
    text = page.read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text)


def test_an_asset_that_is_not_there_is_an_error_like_any_other(client: TestClient) -> None:
    """A missing asset is a 404 with the usual body, and no path leads out of the folder."""
    for path in ("/assets/none.js", "/assets/..%2fapp.py", "/assets/../app.py"):
        response = client.get(path)
        assert (response.status_code, response.json()["error"]["kind"]) == (404, "not_found")
