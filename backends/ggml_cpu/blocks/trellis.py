"""Values of ik_llama.cpp's iqN_kt types: numbers of a multiplicative generator.

An index plus 4096 is the first state; the next one is the state times FACTOR. A value is the sum of
the lower six bits of the four bytes of a state, minus 126.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

FACTOR = 0xCBAC1FED - (1 << 32)
FIRST = 4096


@fn
def value(state):
    """Return the values of i32 states, in the lowest byte of each word."""
    bytes = v.as_i8(state & 0x3F3F3F3F)
    ones = v.as_i8((state & 0) | 0x01010101)
    return (v.dot4(state & 0, bytes, ones) - 126) & 255


@fn
def four_values(index):
    """Return the first four values of each index (i32 lanes) as the bytes of a word, and the
    state."""
    first = (index + FIRST) * FACTOR
    second = first * FACTOR
    third = second * FACTOR
    fourth = third * FACTOR
    words = value(first) | value(second) << 8 | value(third) << 16 | value(fourth) << 24
    return words, fourth


@fn
def eight_values(index):
    """Return i8x64: eight values of each of eight indices (i32x8)."""
    low, state = four_values(index)
    high, _ = four_values(state - FIRST)
    return v.as_i8(v.concat(v.zip_low(low, high), v.zip_high(low, high)))
