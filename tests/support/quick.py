"""Hooks of `pytest -m quick`: the marker of tests/quick.txt, and no other file is collected."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TESTS = Path(__file__).parents[1]
LIST = TESTS / "quick.txt"
GOLDEN = {"golden/test_nodes.py": "nodes-fa-on", "golden/test_values.py": "logits"}


class QuickSet(NamedTuple):
    """The tests of tests/quick.txt: whole files, and tests of recorded models by their ids."""

    files: frozenset[Path]
    models: frozenset[str]

    def has_file(self, path: Path) -> bool:
        """Return whether a file or folder has tests of the set."""
        return any(file == path or path in file.parents for file in self.paths)

    @property
    def paths(self) -> frozenset[Path]:
        """Every file with tests of the set."""
        return self.files | {TESTS / name for name in GOLDEN}

    def has_test(self, path: Path, params: str) -> bool:
        """Return whether a test belongs to the set.

        Args:
            path: Its file.
            params: Id of its parameters, "" without any.
        """
        if path in self.files:
            return True
        run = GOLDEN.get(path.relative_to(TESTS).as_posix()) if TESTS in path.parents else None
        return run is not None and params.removesuffix(f"-{run}") in self.models - {params}


@cache
def quick_set() -> QuickSet:
    """Read tests/quick.txt."""
    files, models = set[Path](), set[str]()
    for line in LIST.read_text(encoding="utf-8").splitlines():
        where, *names = line.partition("#")[0].split() or [""]
        if where == "model":
            models.update(names)
        else:
            files.update(TESTS / where / f"{name}.py" for name in names)
    return QuickSet(frozenset(files), frozenset(models))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m quick`, import no file without such tests: most are slow to collect."""
    inside = TESTS in collection_path.parents
    if config.option.markexpr != "quick" or not inside or quick_set().has_file(collection_path):
        return None
    return True


def pytest_itemcollected(item: Any) -> None:
    """Mark the tests of the set."""
    call = getattr(item, "callspec", None)
    if quick_set().has_test(item.path, call.id if call else ""):
        item.add_marker("quick")
