#!/usr/bin/env python3
"""The page of llama_py's rooms, from the contract in pyproject.toml and their docstrings.

python -m dev.docs.rooms > docs/rooms.md
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """# Rooms

`llama_py` has a folder for each step from a file to text, and two loose modules: `model.py` and
`_moved.py`. A room imports only rooms above it in this table, and `ggml_py`; the import contract in
`pyproject.toml` holds this, and this page is made from it (`python -m dev.docs.rooms`). A module
that has moved here still has its former path for one release, with a warning.

| room | what it has |
|---|---|
"""


def order() -> list[str]:
    """The rooms of the contract, the lowest first."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'name = "rooms of llama_py"\n.*?layers = \[(.*?)\]', text, re.DOTALL)
    assert found is not None
    return re.findall(r'"(\w+)"', found[1])[::-1]


def first_line(room: str) -> str:
    """The first sentence of a room's docstring."""
    source = (ROOT / "llama_py" / room / "__init__.py").read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(text.partition("\n\n")[0].split())


def page() -> str:
    rooms = [room for room in order() if room != "model"]
    rows = [
        f"| [`{room}/`](../llama_py/{room}/__init__.py) | {first_line(room)} |" for room in rooms
    ]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
