"""The pictures of docs/graph-view.md, of pages in a headless Chromium.

    python -m dev.docs.graph_screenshots       # needs selenium, pillow, chromium, chromedriver

The demo model is run and timed; of the 48 layers there is only a head (make_bench_model.py --hole).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from dev.compare.make_bench_model import SIZES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "graph-view"
PROMPT = "ROMEO: But soft, what light through yonder window breaks?"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SMALL, LARGE = (1280, 800), (2560, 1440)
LARGEST = "80b"  # size name of make_bench_model.py


def unfold(kind: str, number: int) -> str:
    return f"document.querySelectorAll('.card.{kind} > .face')[{number}].click()"


# file, page, size, dark, actions
SCENES: tuple[tuple[str, str, tuple[int, int], bool, Sequence[str]], ...] = (
    ("demo-1280.png", "demo", SMALL, False, ["location.hash = '#g0n294'"]),
    ("demo-2560.png", "demo", LARGE, True, ["location.hash = '#g0n46'"]),
    ("large-1280.png", "large", SMALL, False, []),
    ("large-2560.png", "large", LARGE, False, [unfold("layer", 0), unfold("block", 2)]),
)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        pages = {name: Path(folder) / f"{name}.html" for name in ("demo", "large")}
        write_pages(Path(folder), pages)
        for name, page, size, dark, steps in SCENES:
            png = picture(pages[page], Path(folder) / name, size, dark, steps)
            (FOLDER / name).write_bytes(small(png))
            print(f"{FOLDER / name}: {(FOLDER / name).stat().st_size >> 10} KiB")


def write_pages(folder: Path, pages: dict[str, Path]) -> None:
    arch = next(name for name, sizes in SIZES.items() if LARGEST in sizes)
    model = folder / f"{arch}-{LARGEST}.gguf"
    made = ["--arch", arch, "--size", LARGEST, "--type", "Q4_K_M", "--hole"]
    run("-m", "dev.compare.make_bench_model", *made, "--out", str(model))
    view = ("-c", "from llama_py_tools.start import graph; graph()", "view")
    run(*view, "-p", PROMPT, "--decode", "1", "--profile", "-t", "1", "-o", str(pages["demo"]))
    run(*view, "-m", str(model), "-p", PROMPT, "-o", str(pages["large"]))


def run(*args: str) -> None:
    subprocess.run([sys.executable, *args], check=True)


def picture(
    page: Path, profile: Path, size: tuple[int, int], dark: bool, steps: Sequence[str]
) -> bytes:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    with webdriver.Chrome(options, Service(shutil.which("chromedriver"))) as driver:
        metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        command: Any = driver.execute_cdp_cmd
        command("Emulation.setDeviceMetricsOverride", metrics)
        command("Emulation.setEmulatedMedia", {"features": scheme})
        driver.get(page.as_uri())
        for step in ("", *steps):
            driver.execute_script(step)
            time.sleep(1)
        return bytes(driver.get_screenshot_as_png())


def small(png: bytes) -> bytes:
    """Reduce an image to its most frequent colors: all areas, and enough for the edges of text."""
    found, out = Image.open(BytesIO(png)).convert("RGB"), BytesIO()
    colours = sorted(found.getcolors(1 << 24) or [], reverse=True)[:128]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in colours for part in colour])
    found.quantize(palette=palette, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


if __name__ == "__main__":
    main()
