"""docs/options.md: every option, made from the declarations, never by hand."""

from __future__ import annotations

from pathlib import Path

from dev.docs.option_table import table

DOCUMENT = Path(__file__).parents[2] / "docs" / "options.md"


def test_document_is_up_to_date() -> None:
    stale = "run: python -m dev.docs.option_table > docs/options.md"
    assert DOCUMENT.read_text() == table(), stale


def part(name: str) -> tuple[str, list[str]]:
    """The usual commands of a class, and its rows."""
    text = table().partition(f"\n### {name}\n")[2].partition("\n#")[0]
    usual = text.partition("\nCommands: ")[2].partition("\n")[0]
    return usual, [row for row in text.splitlines() if row.startswith("| `-")]


def test_an_option_of_several_commands_stands_once() -> None:
    rows = [row for row in table().splitlines() if row.startswith("| `-ub`")]
    assert len(rows) == 2  # of a context, and of bench, where it has several values


def test_commands_stand_once_for_each_class() -> None:
    usual, rows = part("ContextParams")
    assert usual.startswith("cli, cli warmup, debug, ") and usual.endswith(", server, mcp")
    assert not any("debug" in row for row in rows if row.endswith("|  |"))
    usual, rows = part("BenchParams")
    assert usual == "bench" and rows and all(row.count(" | ") == 3 for row in rows)


def test_a_row_lists_commands_that_differ() -> None:
    """Each option has its commands, from the line above its table or in its row."""
    usual, rows = part("VisionParams")
    differing = [row for row in rows if not row.endswith("|  |")]
    assert 0 < len(differing) < len(rows)
    assert all(usual not in row for row in differing)
