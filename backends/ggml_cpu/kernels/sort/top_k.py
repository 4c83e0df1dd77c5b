"""TOP_K: select the k largest elements of each row without sorting it.

The first elements of a row fill a buffer of candidates, which is then reduced to the k largest.
Each later element above the k-th largest becomes a candidate. When the buffer is full,
it is reduced again.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._common import dense_rows, n_rows, require_all, row_address, types_are
from ggml_cpu.kernels._moves import copy_bytes
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

SMALLEST = -(1 << 31)  # key of NaN, below the keys of all numbers
ROOM = 512  # minimum capacity for candidates


@fn
def candidate_capacity(k: int) -> int:
    """Return the capacity for candidates, in whole vectors.

    It is at least 2 k: after a reduction to k candidates, k more fit.
    """
    return max(ROOM, (2 * k + LANES - 1) // LANES * LANES)


@fn
def keys_bytes(k: int) -> int:
    """Return the bytes of candidate keys and a spare vector; the indices have equal size."""
    return 4 * (candidate_capacity(k) + LANES)


def candidates(node: Tensor, nth: int) -> tuple[int, int]:
    return 0, 2 * keys_bytes(node.ne[0])


@fn
def to_keys(x):
    """Return i32 keys that sort like the floats; -0 equals 0, and NaN is below all numbers."""
    bits = v.as_i32(x + 0.0)
    return v.select(x == x, bits ^ (v.asr(bits, 31) & 0x7FFFFFFF), SMALLEST)


@fn
def count_keys(keys, n, bound):
    """Return the number of keys >= bound among n keys."""
    count = v.i32(0)
    for i in range(0, n, v.LANES):
        count = v.select(v.i32_load(keys + 4 * i) >= bound, count + 1, count)
    return v.vsum(count)


@fn
def find_bound(keys, n, k, low):
    """Return a bound that exactly k of n keys reach, or the k-th largest key.

    low: a lower limit; at least k keys must reach it.
    """
    top = v.i32(SMALLEST)
    for i in range(0, n, v.LANES):
        top = v.vmax(top, v.i32_load(keys + 4 * i))
    high = v.vmaxval(top) + 1
    if k == 1:
        low = high - 1
    elif k <= v.LANES:
        low = max(low, v.vminval(top))  # every lane has a key >= this
    while high - low > 1:
        middle = (low + high) >> 1
        reached = count_keys(keys, n, middle)
        if reached == k:
            return middle
        low, high = (middle, high) if reached > k else (low, middle)
    return low


@fn
def keep_largest(keys, indices, n, k, low):
    """Move the k largest of n keys and their indices to the front; return their bound.

    Among equal keys, the first remain. low: see `find_bound`.
    """
    v.store(keys + 4 * n, v.i32(SMALLEST))
    bound = find_bound(keys, n, k, low)
    at, equal = 0, k - count_keys(keys, n, bound + 1)
    for i in range(0, n, v.LANES):
        hits = v.vbits(v.i32_load(keys + 4 * i) >= bound)
        while hits != 0:
            j = i + v.lowest_bit(hits)
            hits &= hits - 1
            key = v.ld_i32(keys + 4 * j)
            v.st_i32(keys + 4 * at, key)
            v.st_i32(indices + 4 * at, v.ld_i32(indices + 4 * j))
            at += int(key > bound or equal > 0)
            equal -= int(key == bound)
    return bound


@fn
def top_of_row(x, n, k, keys, indices):
    """Store the indices of the k largest of n floats at `indices`."""
    room = candidate_capacity(k)
    held = min(n, room - (room - n) % v.LANES)  # the rest of the row is whole vectors
    for i in range(0, held, v.LANES):
        v.store(keys + 4 * i, to_keys(v.f32_load_n(x + 4 * i, held - i)))
        v.store(indices + 4 * i, v.iota() + i)
    start = held
    bound = keep_largest(keys, indices, held, k, SMALLEST)
    held = k
    for i in range(start, n, v.LANES):
        fresh = to_keys(v.f32_load(x + 4 * i))
        hits = v.vbits(fresh > bound)
        while hits != 0:
            j = v.lowest_bit(hits)
            hits &= hits - 1
            v.st_i32(keys + 4 * held, v.lane(fresh, j))
            v.st_i32(indices + 4 * held, i + j)
            held += 1
        if held + v.LANES > room or (i + v.LANES == n and held > k):
            bound = keep_largest(keys, indices, held, k, bound)
            held = k


@kernel("TOP_K", when=require_all(types_are("i32", "f32"), dense_rows), scratch=candidates)
def top_k_f32(p, ith, nth):
    n, k = v.ne(p, 1, 0), v.ne(p, 0, 0)
    keys = v.local(p, ith)
    indices = keys + keys_bytes(k)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        top_of_row(row_address(p, 1, r), n, k, keys, indices)
        copy_bytes(row_address(p, 0, r), indices, 4 * k)
