#!/usr/bin/env python3
"""Take screenshots of the chat page for docs/server.md, with the demo model, in Chromium.

    python -m dev.docs.chat_screenshots        # writes to docs/server/

Needs a checkout, `pip install '.[server,vision]'`, selenium, chromium and chromedriver. Chromium
runs headless. A tiny model with random weights responds to images, since the demo model has no
vision encoder.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from dev.compare.load.servers import ours, running
from tests.support.browser import chromium
from tests.support.eyes import files_of

ROOT = Path(__file__).parents[2]


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
        _with_image(Path(folder))


def _with_image(folder: Path) -> None:
    model, eyes = files_of("pixtral", folder)
    command = [*ours(str(model), 4096, 1, 2), "--mmproj", str(eyes), "-n", "24", "--temp", "0"]
    with running(command, folder / "log") as url, chromium(folder) as driver:
        driver.get(url)
        time.sleep(1)
        driver.find_element("name", "images").send_keys(str(_drawn(folder / "sea.png")))
        time.sleep(1)
        driver.find_element("name", "message").send_keys("What is in this picture?\n")
        time.sleep(5)
        driver.find_element("name", "images").send_keys(str(folder / "sea.png"))
        time.sleep(1)
        _picture(driver, "chat-image.png", "light")


def _drawn(path: Path) -> Path:
    """Draw a boat and a sun above the sea."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (320, 200), "#9fd3ee")
    draw = ImageDraw.Draw(image)
    draw.ellipse((210, 25, 270, 85), fill="#ffd34d")
    draw.rectangle((0, 130, 320, 200), fill="#2f6f9f")
    draw.polygon([(70, 130), (150, 130), (135, 150), (85, 150)], fill="#7a4a2a")
    draw.polygon([(108, 125), (108, 60), (150, 120)], fill="#ffffff")
    image.save(path)
    return path


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
