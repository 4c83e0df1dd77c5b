"""dev/compare/compare_scores.py: all engines score the same choices alike."""

from __future__ import annotations

import pytest

from dev.compare import compare_scores

SMALL = ["-n", "2", "--prompt", "20", "--shared", "8", "--choices", "3", "--warmup", "1"]


def test_engines_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_scores.main(SMALL) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == [
        "separate",
        "separate, 3 at once",
        "Engine.score",
        "Model.score",
    ]
    assert float(rows[0][3]) == 0
    assert compare_scores.main([*SMALL, "--tolerance=-1"]) == 1
