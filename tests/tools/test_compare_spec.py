"""dev/compare/compare_spec.py on the demo model: two tables, and the same text with every draft."""

from __future__ import annotations

import pytest

from dev.compare import compare_spec


def test_two_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_spec.main(["-n", "6", "-r", "1", "-c", "256"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    rows = [line.split(" | ") for line in first.splitlines()[2:]]
    assert [row[0] for row in rows] == ["| none", "| 1", "| 2", "| 3", "| 4"]
    assert [row[-1] for row in rows] == ["yes |"] * 5
    assert [row[3] != "" for row in rows] == [False, True, True, True, True]
    assert [line.split(" | ")[0] for line in second.splitlines()[2:]] == [
        f"| {n}" for n in range(1, 6)
    ]
