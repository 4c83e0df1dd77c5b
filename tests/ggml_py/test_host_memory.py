"""Memory of the host: aligned, zeroed, and given back."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import psutil
import pytest

from ggml_py import host, host_memory
from ggml_py.backend import HostBuffer, aligned_bytes
from ggml_py.host_memory import LARGE, zero


@pytest.mark.parametrize("size", [0, 1, 4095, LARGE - 1, LARGE, LARGE + 4097, 3 * LARGE + 1])
@pytest.mark.parametrize("cut", [(0, 0), (1, 0), (4097, 5), (8192, 4096)])
def test_all_bytes_are_zero_and_no_others(size: int, cut: tuple[int, int]) -> None:
    whole = aligned_bytes(size)
    whole[:] = 7
    start, end = cut[0], max(cut[0], size - cut[1])
    zero(whole[start:end])
    want = np.full(size, 7, np.uint8)
    want[start:end] = 0
    np.testing.assert_array_equal(whole, want)


def test_elsewhere_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SYSTEM", "darwin")
    data = aligned_bytes(2 * LARGE)
    data[:] = 7
    zero(data)
    assert not data.any()


def test_memory_of_others_is_written() -> None:
    for other in (np.full(3 * LARGE, 7, np.uint8), np.frombuffer(bytearray(LARGE), np.uint8)):
        data: Any = other
        zero(data)
        assert not data.any()
        assert host_memory._area(data) is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not take pages back")
def test_a_cleared_buffer_takes_no_memory() -> None:
    process, size = psutil.Process(), 64 * LARGE
    buffer = HostBuffer(aligned_bytes(size))
    buffer.data[:] = 7
    touched = process.memory_info().rss
    buffer.clear()
    assert touched - process.memory_info().rss > 0.9 * size
    buffer.clear(3)
    assert (buffer.data == 3).all()
