"""docs/rooms.md is what dev/docs/rooms.py makes, and has every room."""

from __future__ import annotations

import pytest

from dev.docs import rooms


def test_the_page_is_fresh() -> None:
    stale = "run: python -m dev.docs.rooms > docs/rooms.md"
    assert (rooms.ROOT / "docs" / "rooms.md").read_text(encoding="utf-8") == rooms.page(), stale


@pytest.mark.parametrize("package", rooms.PACKAGES)
def test_every_room_is_there(package: str) -> None:
    folder = rooms.ROOT / package
    folders = {p.parent.name for p in folder.glob("*/__init__.py")}
    loose = {p.stem for p in folder.glob("*.py")}
    assert folders | loose == {*rooms.order(package), "__init__", "_moved"} | (
        {"data"} if package == "llama_py" else set()
    )


@pytest.mark.parametrize(
    ("package", "loose"),
    [("ggml_py", {"errors", "graph", "opspec", "tensor", "types"}), ("llama_py", {"model"})],
)
def test_loose_modules(package: str, loose: set[str]) -> None:
    assert {p.stem for p in (rooms.ROOT / package).glob("*.py")} == {"__init__", "_moved", *loose}
