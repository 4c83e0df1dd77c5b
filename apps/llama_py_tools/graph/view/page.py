"""Web page of a graph: one HTML file with its data, script and style.

The page loads no external resources, and a content security policy enforces that. The data of a
model file is one JSON element without any `<`, and the page displays it only as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from importlib.resources import files

from llama_py_tools.graph.view.data import Data

FOLDER = files("llama_py_tools.graph.page")
LIBRARY, LICENCE = "dagre.min.js", "dagre.LICENSE.txt"
# In import order: a module may use the exports of the modules before it.
MODULES = (
    "dom.js",
    "format.js",
    "model.js",
    "colours.js",
    "layout.js",
    "cards.js",
    "boxes.js",
    "details.js",
    "overview.js",
    "memory.js",
    "search.js",
    "keys.js",
    "main.js",
)


def page(data: Data) -> Iterator[str]:
    """Yield the HTML text of the page in parts."""
    head, _, tail = _read("page.html").partition("<!-- parts -->")
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src '{_hash(script())}'"
    yield head.replace("TITLE", html.escape(data["title"])).replace("POLICY", policy)
    yield f"<style>\n{_read('scheme.css')}\n{_read('page.css')}</style>\n"
    yield tail.partition("<!-- data -->")[0]
    yield f'<script type="application/json" id="data">{embed_json(data)}</script>\n'
    yield f"<script>{script()}</script>\n"
    yield tail.partition("<!-- data -->")[2]


def embed_json(data: Data) -> str:
    """Return JSON without characters that are special in HTML."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # ASCII, so without U+2028
    for c in "<>&":
        text = text.replace(c, f"\\u{ord(c):04x}")
    return text


def script() -> str:
    """Return the page's script: the library, and all modules as one function."""
    modules = "\n".join(_strip_imports(_read(name)) for name in MODULES)
    library = f"/*! dagre\n\n{_read(LICENCE)}*/\n{_read(LIBRARY)}"
    return f'{library}(() => {{\n"use strict";\n{modules}}})();\n'


def _strip_imports(text: str) -> str:
    text = re.sub(r"^import [^;]*;\n", "", text, flags=re.M)
    return re.sub(r"^export ", "", text, flags=re.M)


def _hash(text: str) -> str:
    """Return the hash that identifies an inline script in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")
