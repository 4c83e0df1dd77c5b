"""A small version of the table of false alarms and planted faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.compare import judge_alarms as tool
from dev.compare.alarms.faults import FAULTS, Fault
from dev.compare.alarms.models import OUTLIERS, Outlier, build

SOME = (
    ("MUL_MAT", "q4_K"),
    ("MUL_MAT_ID", "q8_0"),
    ("FLASH_ATTN_EXT", "f32"),
    ("SSM_SCAN", "f32"),
    ("SET_ROWS", "f32"),
    ("RMS_NORM", "f32"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alarms")


@pytest.mark.parametrize("model", [OUTLIERS[0], OUTLIERS[7]], ids=lambda m: m.name)
def test_a_right_model_has_no_alarm(model: Outlier, folder: Path) -> None:
    cells = tool.alarms(build(model, folder), 40, 12, opencl=False)
    assert cells.keys() == {"--check", "131,072", "diff"}
    assert not [cell for cell in cells.values() if tool.is_bad(cell)]
    assert cells["--check"].endswith(" (40)")


def first(op: str, type: str) -> Fault:
    return next(f for f in FAULTS if (f.op, f.type) == (op, type))


@pytest.mark.parametrize("fault", [first(*one) for one in SOME], ids=lambda f: f.op)
def test_a_hundredth_in_one_row_is_found(fault: Fault, folder: Path) -> None:
    """By --check, and by diff, within a step of several nodes too."""
    cells = tool.found(fault, build(fault.model, folder))
    assert cells["--check"] == "found"
    assert cells["diff"].startswith("found, ")


def test_a_page_of_both_tables() -> None:
    text = tool.page({"alarms": {"a": {"diff": "7 (9)"}}, "faults": {"b": {"node": "x"}}})
    assert "| model | diff |\n| --- | --- |\n| a | 7 (9) |" in text
    assert text.endswith("| node |\n| --- | --- |\n| b | x |\n")
