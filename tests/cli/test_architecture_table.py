"""docs/architectures.md: every architecture, made from the model files, never by hand."""

from __future__ import annotations

from pathlib import Path

from dev import tiny_models as tiny
from dev.docs.architecture_table import table
from llama_py import models

DOCUMENT = Path(__file__).parents[2] / "docs" / "architectures.md"


def test_document_is_up_to_date() -> None:
    stale = "run: python -m dev.docs.architecture_table > docs/architectures.md"
    assert DOCUMENT.read_text() == table(), stale


def test_every_architecture_and_variant_has_its_place() -> None:
    first = table().split("##")[0]
    rows = {row.split("`")[1]: row for row in first.splitlines() if row.startswith("| `")}
    assert set(rows) == set(models._own_modules())
    for arch, variant in tiny.every():
        assert f" {variant} (" in rows[arch]
