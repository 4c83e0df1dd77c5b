"""Helpers that copy, clear and transpose rows."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn

TILE = 16  # elements per side of a square block of a transposing copy


@fn
def copy_bytes(d, s, n):
    """Copy n bytes in pieces of 64, 8, 4 and 1 bytes."""
    i = 0
    while i + 64 <= n:
        v.store(d + i, v.i8x64_load(s + i))
        i += 64
    while i + 8 <= n:
        v.st_i64(d + i, v.ld_i64(s + i))
        i += 8
    if i + 4 <= n:
        v.st_i32(d + i, v.ld_i32(s + i))
        i += 4
    while i < n:
        v.st_i8(d + i, v.ld_i8(s + i))
        i += 1


@fn
def fill_words(d, n):
    """Set n 32-bit words to 0."""
    c = 0
    while c + v.LANES <= n:
        v.store(d + 4 * c, v.f32(0.0))
        c += v.LANES
    if c < n:
        v.store_n(d + 4 * c, v.f32(0.0), n - c)


@fn
def transpose_words(d, d1, s, s0, n0, n1):
    """Compute d[j, i] = s[i, j] for 4-byte elements, i < n0, j < n1.

    s is dense along j, d along i; s0 and d1 are the bytes between their rows.
    """
    for j0 in range(0, n1, TILE):
        for i0 in range(0, n0, TILE):
            for i in range(i0, min(n0, i0 + TILE)):
                for j in range(j0, min(n1, j0 + TILE)):
                    v.st_i32(d + j * d1 + 4 * i, v.ld_i32(s + i * s0 + 4 * j))
