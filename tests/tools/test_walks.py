"""docs/walks.md: each stop is in the code, no file comes twice, none imports one before it."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STOP = re.compile(r"^\d+\. \[[\w.]+\]\(\.\./([\w/.]+)\) `(\w+)`: ", re.MULTILINE)
WALKS = {
    part.partition("\n")[0]: STOP.findall(part)
    for part in (ROOT / "docs" / "walks.md").read_text(encoding="utf-8").split("\n## ")[1:]
}


def module(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] in ("apps", "backends") else parts)


def imports(path: str) -> set[str]:
    """Modules that a file imports at its top."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk(walk: str) -> None:
    stops = WALKS[walk]
    paths = [path for path, _ in stops]
    assert 10 <= len(paths) == len(set(paths)) <= 15
    for path, name in stops:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {getattr(node, "name", "") for node in tree.body}, path
    for before, later in combinations(paths, 2):
        assert module(before) not in imports(later), f"{later} imports {before}"


def test_both_walks_are_there() -> None:
    assert len(WALKS) == 2
