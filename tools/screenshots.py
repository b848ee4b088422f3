"""Takes the screenshots in docs/images: `python -m tools.screenshots`."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import httpx
from PIL import Image
from selenium.webdriver.support.ui import Select

from cerberank_models.checkpoint.bundled import BUNDLED
from tools.browser import DESKTOP, PHONE, Browser, open_browser
from tools.process import ROOT, Process, serving

FOLDER = ROOT / "docs" / "images"
TALL_PHONE = (PHONE[0], 1500)


def main() -> None:
    """Start the service with the bundled checkpoint and take screenshots of both pages."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        open_browser() as browser,
        serving(BUNDLED, Path(scratch) / "log") as service,
    ):
        for _ in range(8):  # warm-up, so that the shown times are typical
            httpx.post(f"{service.url}/v1/rank", json={"question": "a", "candidates": ["b"]}).raise_for_status()
        _take_all(browser, service)


def _take_all(browser: Browser, service: Process) -> None:
    for theme in ("light", "dark"):
        for device, size in (("desk", DESKTOP), ("phone", TALL_PHONE)):
            browser.look(theme, size)
            browser.driver.get("about:blank")  # so that the address of the last picture does not fill the form
            browser.driver.get(f"{service.url}/")
            browser.wait_for("#summary", "12 candidates in")
            Select(browser.find("#example")).select_by_visible_text("A hundred candidates")
            browser.wait_for("#summary", "100 candidates in")
            browser.driver.execute_script("document.activeElement.blur(); scrollTo({top: 0, behavior: 'instant'})")
            _save(browser, f"playground-{device}-{theme}")
        browser.look(theme, DESKTOP)
        browser.driver.get(f"{service.url}/status")
        browser.wait_for("#models", "Architecture")
        _save(browser, f"status-{theme}")


def _save(browser: Browser, name: str) -> None:
    """Save a screenshot with a palette that keeps rare colours, which halves the file's size."""
    picture = Image.open(io.BytesIO(browser.driver.get_screenshot_as_png())).convert("RGB")
    FOLDER.mkdir(exist_ok=True)
    picture.quantize(128, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        FOLDER / f"{name}.png", optimize=True
    )


if __name__ == "__main__":
    main()
