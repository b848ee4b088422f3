"""Headless Chromium, with a theme, a window size and access to its console and requests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tools.process import installed

WAIT_SECONDS = 30.0
DESKTOP, PHONE = (1280, 900), (390, 844)
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


class Browser:
    """A browser that shows one page at a time."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver: Any = driver  # some of selenium's methods have no types

    def look(self, theme: str, size: tuple[int, int]) -> None:
        """Set the preferred theme and the window's size."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] == PHONE[0]}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def find(self, selector: str) -> Any:
        """The first element that the selector matches."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """The text of every element that the selector matches, in document order, by one script."""
        script = "return [...document.querySelectorAll(arguments[0])].map(element => element.textContent)"
        texts: list[str] = self.driver.execute_script(script, selector)
        return texts

    def wait_for(self, selector: str, text: str) -> None:
        """Wait until an element that the selector matches contains `text`."""
        WebDriverWait(self.driver, WAIT_SECONDS).until(lambda _: any(text in each for each in self.texts(selector)))

    def slide(self, selector: str, value: float) -> None:
        """Set a slider's value, with the events that dragging it would cause."""
        script = "const [slider, value] = arguments; slider.value = value;"
        script += "for (const name of ['input', 'change']) slider.dispatchEvent(new Event(name, {bubbles: true}));"
        self.driver.execute_script(script, self.find(selector), value)

    def console(self) -> list[str]:
        """The console's lines since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """The URLs that the browser has requested since the last call."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """A new browser. Raises MissingProgramError if Chromium or its driver is not installed."""
    chromium, driver_path = installed("chromium", "chromium"), installed("chromedriver", "chromium-driver")
    options = Options()
    options.binary_location = chromium
    for argument in ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(driver_path))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
