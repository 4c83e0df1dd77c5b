"""docs/options.md: every option, made from the declarations, never by hand."""

from __future__ import annotations

from pathlib import Path

from dev.docs.option_table import table

DOCUMENT = Path(__file__).parents[2] / "docs" / "options.md"


def test_document_is_up_to_date() -> None:
    stale = "run: python -m dev.docs.option_table > docs/options.md"
    assert DOCUMENT.read_text() == table(), stale


def test_an_option_of_several_commands_stands_once() -> None:
    rows = [row for row in table().splitlines() if row.startswith("| `-ub`")]
    shared, several = rows
    graphs = (
        "graph dump, graph read, graph view, graph diff, graph profile, graph placement, graph fit"
    )
    last = "imatrix, embedding, perplexity, cvector-generator, server"
    assert shared.endswith(f"| cli, cli warmup, debug, {graphs}, {last} |")
    assert several.endswith("| bench |")
