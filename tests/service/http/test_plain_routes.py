from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.service.observe import service_of

from cerberank_service.http.plain_routes import PAGES, STATIC, Exposition
from cerberank_service.service import Load


def test_the_exposition_is_made_anew_at_most_once_a_second_for_each_format(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In between every request gets the same bytes; the load is asked for only when they are made."""
    now, service = [10.0], service_of(client)
    loads = (Load(queued_tokens=count, queued_seconds=0.0, requests_in_flight=0) for count in range(1, 4))
    monkeypatch.setattr(service, "load", loads.__next__)
    exposition = Exposition(service, seconds=1.0, clock=lambda: now[0])
    first, media_type = exposition("")
    assert media_type.startswith("text/plain")
    assert b"cerberank_queued_tokens 1.0" in first
    now[0] += 0.99
    assert exposition("*/*") == (first, media_type)
    for version in ("1.0.0", "9.9.9", "0.0.1; escaping=values"):
        assert exposition(f"application/openmetrics-text; version={version}")[1].startswith("application/openmetrics")
    now[0] += 0.01
    assert b"cerberank_queued_tokens 3.0" in exposition("")[0]


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
