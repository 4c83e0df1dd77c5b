"""Memory of the host: aligned, zeroed, and given back."""

from __future__ import annotations

import gc
import sys
from typing import Any
from weakref import ref

import numpy as np
import psutil
import pytest

from ggml_py.backend import Bytes, HostBuffer, aligned_bytes, host_memory
from ggml_py.backend.host_memory import AREA, LARGE, SHORT, SharedPages, zero
from ggml_py.machine import host


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


@pytest.mark.parametrize("size", [0, 4097, LARGE + 4097, 3 * LARGE + 1])
@pytest.mark.parametrize("cut", [(0, 0), (4097, 5)])
@pytest.mark.parametrize("most", [0, host_memory.OFFERED])
def test_offered_bytes_are_zero_and_no_others(
    size: int, cut: tuple[int, int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "OFFERED", most)
    whole = aligned_bytes(size)
    whole[:] = 7
    start, end = cut[0], max(cut[0], size - cut[1])
    host_memory.offer(whole[start:end])
    want = np.full(size, 7, np.uint8)
    want[start:end] = 0
    np.testing.assert_array_equal(whole, want)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not take pages back")
def test_offering_touches_only_pages_with_data() -> None:
    process, buffer = psutil.Process(), HostBuffer(aligned_bytes(64 * LARGE))
    buffer.data[5 * LARGE] = buffer.data[-1] = 7
    touched = process.memory_info().rss
    buffer.offer()
    assert process.memory_info().rss - touched < 8 * LARGE
    assert not buffer.data[5 * LARGE] and not buffer.data[-1]


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


def address(raw: Bytes) -> int:
    return int(raw.__array_interface__["data"][0])


def test_tensors_share_pages() -> None:
    """They lie side by side, each from an aligned byte on, and begin as zeros."""
    memory = SharedPages()
    sizes = [1, 64, 100, 3 << 20, 4096, 7 << 20]
    found = [memory.take(size) for size in sizes]
    places = [address(each) for each in found]
    assert [each.size for each in found] == sizes
    assert all(place % 64 == 0 for place in places)
    ends = [place + size for place, size in zip(places, sizes, strict=True)]
    assert all(0 <= after - end < 64 for end, after in zip(ends, places[1:], strict=False))
    assert not any(each.any() for each in found)


def test_what_is_long_has_memory_of_its_own() -> None:
    memory = SharedPages()
    first, long, second = memory.take(64), memory.take(AREA), memory.take(64)
    assert address(second) == address(first) + 64
    assert long.size == AREA


def test_a_full_area_is_followed_by_another() -> None:
    memory = SharedPages()
    found = [memory.take(AREA // 4) for _ in range(6)]
    for i, each in enumerate(found):
        each[:] = i + 1
    assert all((each == i + 1).all() for i, each in enumerate(found))


def test_an_area_is_as_large_as_expected() -> None:
    memory, sizes = SharedPages(), [100, 3 << 20, 5 << 20, SHORT] * 3
    memory.expect([*sizes, SHORT + 1])
    found = [memory.take(size) for size in sizes]
    assert len({id(each.base) for each in found}) == 1
    assert address(found[-1]) - address(found[0]) == 3 * (128 + (8 << 20) + SHORT) - SHORT
    assert memory.take(64).base is not found[0].base


def test_an_area_goes_with_the_last_that_is_in_it() -> None:
    memory = SharedPages()
    first = memory.take(64)
    second = memory.take(64)
    gone = ref(first.base)
    del first
    assert gone() is not None
    del second
    gc.collect()
    assert gone() is None
    assert not memory.take(64).any()
