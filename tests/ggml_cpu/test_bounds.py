"""LLAMA_PY_CHECK_BOUNDS=1: kernels are stopped at the edges of their tensors, and told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLANTED = Path(__file__).with_name("planted.py")


def run(checked: bool, *command: str) -> Any:
    settings = {**os.environ, "LLAMA_PY_CHECK_BOUNDS": str(int(checked))}
    done = subprocess.run(
        [sys.executable, *command], env=settings, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found() -> Any:
    """What came of the kernels in planted.py, one after the other in one process."""
    return run(True, str(PLANTED))


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("reads_past", "a load of 16 bytes at byte 68 of src0 x"),
        ("writes_before", "a store of 4 bytes at byte -4 of dst negative"),
        ("writes_its_source", "a store of 4 bytes at byte 0 of src0 x"),
        ("reads_beyond_a_table", "a load of 1 bytes far from all"),
        ("gathers", "a load of 4 bytes at byte 80 of src0 x"),
        ("writes_two", "a store of 4 bytes at byte 76 of src1 y"),
    ],
)
def test_a_kernel_that_leaves_its_tensors_is_named(found: Any, kernel: str, told: str) -> None:
    assert found[kernel].startswith(f"kernel {kernel} for NEG negative")
    assert told in found[kernel]


def test_all_that_a_kernel_may_touch_it_may(found: Any) -> None:
    assert found["is_right"] == found["often"] == ""


def test_the_number_of_violations_and_the_size_are_told(found: Any) -> None:
    assert "(80 bytes); 5 more such accesses" in found["gathers"]
    assert "(80 bytes, read-only); 0 more" in found["writes_its_source"]


def test_nothing_is_stored_elsewhere_and_the_rest_is_done(found: Any) -> None:
    assert found["around, after writes_before"] == 0
    assert found["source, after writes_its_source"] == 1.5
    assert found["its dst"] == [1.5] * 20


def test_a_neighbour_in_the_same_memory_is_none_of_its_business(found: Any) -> None:
    assert "a store of 4 bytes at byte 80 of dst" in found["writes_after"]
    assert found["its neighbour"] == 0


def test_one_step_among_right_ones_is_found(found: Any) -> None:
    assert found["in between"].startswith("kernel writes_before")


LOOK = """
import json, sys
sys.path.insert(0, {folder!r})
import planted
from ggml_cpu import codegen, frontend, store
if {hidden}:
    codegen.complete = codegen.permitted = frontend.instrument = None
kernel = planted.is_right
text, code = str(codegen.optimize_kernel(kernel)), codegen.object_code(kernel).hex()
print(json.dumps(["bounds." in text, code, store.file_name(kernel), store.environment()]))
"""


def look(checked: bool, hidden: bool = False) -> Any:
    return run(checked, "-c", LOOK.format(folder=str(PLANTED.parent), hidden=hidden))


def test_without_the_variable_there_is_no_trace_of_it() -> None:
    checked, plain = look(True), look(False)
    assert checked[0] and not plain[0]
    assert checked[1] != plain[1]
    assert checked[2] == plain[2], "the fingerprint is of the source"
    assert checked[3].endswith("-bounds") and not plain[3].endswith("-bounds")
    assert checked[3].removesuffix("-bounds") != plain[3]
    assert plain == look(False, hidden=True), "as if the mode were not there"
