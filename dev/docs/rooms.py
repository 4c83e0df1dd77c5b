#!/usr/bin/env python3
"""The page of the rooms of packages, from the contracts in pyproject.toml and their docstrings.

python -m dev.docs.rooms > docs/rooms.md
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

HEAD = """# Code layout

Folders and modules of `ggml_py` and `llama_py`, and their contents. Each row imports only from rows
above it; `llama_py` may also import `ggml_py`. The import contracts in `pyproject.toml` enforce
this, and `python -m dev.docs.rooms` generates this page from the contracts. A module that has moved
into a folder keeps its former path for one release, with a warning.
"""
PACKAGES = {
    "ggml_py": """
## ggml_py

The modules define graphs. The folders have their ops, and the stages from a graph to a device.
""",
    "llama_py": """
## llama_py

Each folder is a step from a file to text. `model.py` is the user interface.
""",
}
TABLE = """
| folder or module | content |
|---|---|
"""


def order(package: str) -> list[str]:
    """Return the rooms of a package's contract, the lowest first."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf'name = "rooms of {package}"\n.*?layers = \[(.*?)\]', text, re.DOTALL)
    assert found is not None
    return re.findall(r"\w+", found[1])[::-1]


def row(package: str, room: str) -> str:
    """Return a room's table row: a link, and the first sentence of its docstring."""
    folder = ROOT / package / room
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    name = f"{room}/" if folder.is_dir() else path.name
    return f"| [`{name}`](../{path.relative_to(ROOT).as_posix()}) | {first} |"


def page() -> str:
    tables = (
        about + TABLE + "\n".join(row(package, room) for room in order(package)) + "\n"
        for package, about in PACKAGES.items()
    )
    return HEAD + "".join(tables)


if __name__ == "__main__":
    print(page(), end="")
