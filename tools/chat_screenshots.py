#!/usr/bin/env python3
"""Pictures of the server's page for docs/server.md, made with the demo model in headless Chromium.

    python tools/chat_screenshots.py        # into docs/server/

Needs a checkout, `llama-py[server]`, selenium, chromium and chromedriver.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from load.servers import ours, running  # noqa: E402
from tests.browser import chromium  # noqa: E402

OUT = ROOT / "docs" / "server"
DEMO = ROOT / "llama_py" / "data" / "demo.gguf"


def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [*ours(str(DEMO), 4096, 2, 2), "--temp", "0", "-n", "60"]
        with running(command, Path(folder) / "log") as url, chromium(Path(folder)) as driver:
            driver.get(url)
            _talk(driver)
            _picture(driver, "chat-light.png", "light")
            driver.find_element("css selector", "header [aria-label=Settings]").click()
            _picture(driver, "chat-dark.png", "dark")


def _talk(driver: Any) -> None:
    for text in ("Who are you?", "What news from the king?"):
        time.sleep(1)
        driver.find_element("name", "message").send_keys(text + "\n")
        time.sleep(4)
    driver.find_elements("css selector", "[aria-label='Answer again']")[-1].click()
    time.sleep(4)


def _picture(driver: Any, name: str, theme: str) -> None:
    driver.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
    time.sleep(0.5)
    driver.save_screenshot(str(OUT / name))


if __name__ == "__main__":
    main()
