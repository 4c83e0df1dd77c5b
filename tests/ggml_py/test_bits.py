"""Bit fields by named axes."""

from __future__ import annotations

import numpy as np
import pytest

from ggml_py.machine.bits import field, join, split

RAW = np.random.default_rng(0).integers(0, 256, (3, 16), np.uint8)


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16, 32])
def test_join_is_the_inverse_of_split(bits: int) -> None:
    parts = split(RAW, bits)
    assert parts.shape == (3, 128 // bits)
    np.testing.assert_array_equal(join(parts, bits), RAW)


def test_bits_are_lowest_first() -> None:
    raw = np.array([[0x21, 0x83]], np.uint8)
    assert split(raw, 4).tolist() == [[1, 2, 3, 8]]
    assert split(raw, 1)[0, :8].tolist() == [1, 0, 0, 0, 0, 1, 0, 0]
    assert split(raw, 16).tolist() == [[0x8321]]


def test_low_nibbles_then_high_ones() -> None:
    f = field("j4 h2 b4 > h j b")
    assert f.nbytes == 4
    raw = np.array([[0x21, 0x43, 0x65, 0x87]], np.uint8)
    assert f.read(raw).tolist() == [[1, 3, 5, 7, 2, 4, 6, 8]]
    assert f.rearrange(raw).tolist() == [[0x31, 0x75, 0x42, 0x86]]


@pytest.mark.parametrize(
    "text", ["s16 x8", "i4 k4 h2 b4 > k h i b", "k4 x32", "j16 e8 > e j", "a2 k4 i4 w4 > w k a i"]
)
def test_write_is_the_inverse_of_read(text: str) -> None:
    f = field(text)
    raw = np.ascontiguousarray(RAW[:, : f.nbytes])
    np.testing.assert_array_equal(f.write(f.read(raw)), raw)


def test_axes_that_differ() -> None:
    with pytest.raises(ValueError, match="must equal the axes of the order"):
        field("i4 b4 > j b")
