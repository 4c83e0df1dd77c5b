"""docs/rooms.md is what dev/docs/rooms.py makes, and has every room."""

from __future__ import annotations

from dev.docs import rooms


def test_the_page_is_fresh() -> None:
    stale = "run: python -m dev.docs.rooms > docs/rooms.md"
    assert (rooms.ROOT / "docs" / "rooms.md").read_text(encoding="utf-8") == rooms.page(), stale


def test_every_room_is_there() -> None:
    folders = {p.parent.name for p in (rooms.ROOT / "llama_py").glob("*/__init__.py")}
    assert folders == {*rooms.order(), "data"} - {"model"}


def test_loose_modules() -> None:
    loose = {p.stem for p in (rooms.ROOT / "llama_py").glob("*.py")}
    assert loose == {"__init__", "_moved", "model"}
