"""A headless Chromium for pages on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def begun(start: Callable[[], Any]) -> Any:
    """A busy machine may not have it ready in the minute that the driver gives it."""
    from selenium.common import WebDriverException

    for _ in range(2):
        with suppress(WebDriverException):
            return start()
    return start()


@contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A driver, which ends with the block; skips the test where there is no browser.

    profile  an empty folder
    """
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    from selenium.webdriver.chrome.service import Service

    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = begun(lambda: webdriver.Chrome(options=options, service=Service(driver)))
    try:
        yield found
    finally:
        found.quit()
