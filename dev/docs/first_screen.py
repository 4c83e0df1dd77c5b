"""The picture of the README, docs/img/first-screen.png: a chat, and the graph page of its model.

    pip install -e '.[screenshots]'
    python -m dev.docs.first_screen       # needs selenium, pillow, chromium, chromedriver

Both halves are recordings of the demo model: the chat runs in a pseudo-terminal with a seed, the
graph page is written by `llama-py-graph view --profile` and opened in a headless Chromium.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from base64 import b64encode
from io import BytesIO
from pathlib import Path

from PIL import Image

from dev.docs import graph_screenshots, terminal_pictures
from dev.docs.pseudo_terminal import PseudoTerminal

OUT = Path(__file__).parents[2] / "docs" / "img" / "first-screen.png"
MESSAGES = Path(__file__).with_suffix(".txt")
COMMAND = "llama-py chat -s 6"
COLUMNS, LINES = 68, 22
SIZE = (1200, 470)
GRAPH = (480, 66, 958, 636)  # the graph without the panels around it
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #e9ebf2; display: flex; gap: 16px; padding: 16px;
        box-sizing: border-box; width: 1200px; height: 470px; align-items: center; }}
img {{ display: block; border-radius: 8px; }}
figure {{ margin: 0; box-shadow: 0 2px 10px #0003; border-radius: 8px; background: #fff; }}
.terminal img {{ width: 784px; }}
.graph img {{ width: 368px; }}
</style>
<figure class="terminal"><img src="data:image/svg+xml;base64,{chat}"></figure>
<figure class="graph"><img src="data:image/png;base64,{graph}"></figure>
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chat = terminal_pictures.svg(chat_terminal(folder), COMMAND, "first")
        page = folder / "page.html"
        graph = graph_screenshots.picture(demo_page(folder), folder / "a", (1280, 800), False, SHOW)
        cut = BytesIO()
        Image.open(BytesIO(graph)).crop(GRAPH).save(cut, "PNG")
        texts = (b64encode(data).decode() for data in (chat.encode(), cut.getvalue()))
        page.write_text(PAGE.format(**dict(zip(("chat", "graph"), texts, strict=True))))
        png = graph_screenshots.picture(page, folder / "b", SIZE, False, ())
        Image.open(BytesIO(png)).convert("RGB").save(OUT, "PNG", optimize=True)
    print(f"{OUT}: {OUT.stat().st_size >> 10} KiB")


SHOW = ("location.hash = '#g0n294'",)


def chat_terminal(folder: Path) -> PseudoTerminal:
    """Return the terminal of a chat with two messages."""
    words = shlex.split(COMMAND)
    words[0] = str(Path(sys.executable).with_name(words[0]))
    env = {"XDG_DATA_HOME": str(folder), "PYTHONWARNINGS": "ignore"}
    with PseudoTerminal(words, env, COLUMNS, LINES, f"$ {COMMAND}\n") as terminal:
        messages = MESSAGES.read_text("utf-8").splitlines()
        for n, message in enumerate(messages, 1):
            terminal_pictures.say(terminal, message, n)
        terminal_pictures.ready(terminal, len(messages) + 1)
        return terminal


def demo_page(folder: Path) -> Path:
    """Write the graph page of the demo model with times."""
    page = folder / "demo.html"
    view = ("-c", "from llama_py_tools.start import graph; graph()", "view")
    flags = ("-p", graph_screenshots.PROMPT, "--decode", "1", "--profile", "-t", "1")
    graph_screenshots.run(*view, *flags, "-o", str(page))
    return page


if __name__ == "__main__":
    main()
