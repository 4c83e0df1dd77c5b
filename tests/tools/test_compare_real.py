"""The table of real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dev.compare import compare_real as tool
from llama_py.quantize.imatrix.file import Imatrix, ImatrixEntry, write_imatrix

SUMS = np.arange(1, 5, dtype=np.float32)


def matrix(path: Path, *sums: float) -> Path:
    entries = {f"{i}": ImatrixEntry(SUMS * x, np.array([4])) for i, x in enumerate(sums)}
    write_imatrix(path, Imatrix("x", entries))
    return path


def test_a_column_for_every_figure() -> None:
    text = tool.page([{"model": "a", "tokens": "2 of 2"}, {"model": "b", "greedy": "1 of 4"}])
    head = "| model | tokens | greedy |\n|---|---|---|\n"
    assert head + "| a | 2 of 2 | - |\n| b | - | 1 of 4 |" in text


def test_the_error_of_an_importance_matrix(tmp_path: Path) -> None:
    ours, theirs = matrix(tmp_path / "a", 1.02, 1, 1), matrix(tmp_path / "b", 1, 1, 1)
    assert tool.imatrix_error(ours, theirs) == "2.00% (0.00%)"
    assert tool.imatrix_error(ours, matrix(tmp_path / "c", 1, 1)).endswith("; 1 are in one only")


def test_margins_where_texts_differ() -> None:
    """Tokens 0 and 1 change places: exact by 0.1, ours by 0.3, llama.cpp's by -0.2."""
    exact = np.array([[-0.5, -1.5], [-1.0, -1.1]])
    ours = [tool.Step(0, {0: -0.6, 1: -1.4}), tool.Step(0, {0: -0.9, 1: -1.2})]
    theirs = [tool.Step(0, {0: -0.5, 1: -1.5}), tool.Step(1, {0: -1.2, 1: -1.0})]
    row = tool.part(ours, theirs, exact)
    assert [row[f"margin: {x}"] for x in ("exact", "ours", "llama.cpp")] == [
        "+0.1000",
        "+0.3000",
        "-0.2000",
    ]
    assert [row[f"error: {x}"] for x in ("ours", "llama.cpp")] == ["0.2000", "0.3000"]
    assert [row[f"RMS error: {x}"] for x in ("ours", "llama.cpp")] == ["0.1000", "0.1118"]
    assert row["nearer"] == "ours"


def test_the_page_is_of_this_tool() -> None:
    assert tool.PAGE.read_text("utf-8").startswith(tool.HEAD)
