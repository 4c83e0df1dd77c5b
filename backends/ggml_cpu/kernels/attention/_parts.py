"""Shared code of the FLASH_ATTN_EXT kernels: work units, masks, online softmax, merging.

All query heads that read the same key head, for all tokens, are rows of one matrix: row r is token
r // G, head r % G of the group of G heads. A work unit multiplies some rows of one such matrix by a
part of the keys. A last step merges the partial results of several parts.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel, routine
from ggml_cpu.kernels._common import pad_to_lanes
from ggml_cpu.kernels.attention._sources import WORD, Accepts
from ggml_cpu.kernels.attention.soft_max import MINUS_INFINITY, alibi_slope
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

KEYS = 64  # keys processed at a time
# Indices of `extra`: blocks of rows, then the results of `kv_kinds`.
BLOCKS, K_KIND, V_KIND, K_BYTES, V_BYTES = 0, 1, 2, 3, 4
STATE = 16  # bytes of a row's state: four f32, in this order
TOP, TOTAL, FACTOR, SLOPE = 0, 4, 8, 12  # maximum, sum of weights, rescale factor, ALiBi slope
MIN_KEYS = 256  # minimum keys per part
Q, K, V, MASK, SINKS = 1, 2, 3, 4, 5


def refusal(node: Tensor, name: str, accepts: Accepts) -> str:
    """Return why a kernel for the types of `accepts` cannot run the node, or ""."""
    q, k, values = node.sources(3)
    if q.type.name != "f32" or not accepts(k.type.name, values.type.name):
        return f"needs f32 queries, {name} keys and values; got {q}, {k}, {values}"
    for t in (q, k, values):
        if not t.has_contiguous_rows():
            return f"needs dense rows; {t} has elements {t.nb[0]} bytes apart"
    return ""


@fn
def group_size(p):
    """Return the number of query heads per key head."""
    return v.ne(p, Q, 2) // v.ne(p, K, 2)


@fn
def mask_address(p, pair, r):
    """Return the address of row r's mask, 0 without a mask.

    pair = key head + n_head_kv * batch
    """
    if v.data(p, MASK) == 0:
        return 0
    group, n_head_kv = group_size(p), v.ne(p, K, 2)
    head = pair % n_head_kv * group + r % group
    i2, i3 = head % v.ne(p, MASK, 2), pair // n_head_kv % v.ne(p, MASK, 3)
    shift = r // group * v.nb(p, MASK, 1) + i2 * v.nb(p, MASK, 2) + i3 * v.nb(p, MASK, 3)
    return v.data(p, MASK) + shift


@fn
def last_visible(mask, n):
    """Return how many of n keys to process: up to the last mask vector with a value above -inf."""
    i = (n - 1) // LANES * LANES
    while i >= 0:
        bias = v.select(v.iota() < n - i, v.f16_load_n(mask + 2 * i, n - i), MINUS_INFINITY)
        if v.vany(bias > MINUS_INFINITY):
            return min(n, i + LANES)
        i -= LANES
    return 0


@fn
def keys_seen(p, pair, first, count, key, n):
    """Return how many of n keys to process; the mask hides later keys from all these rows."""
    if v.data(p, MASK) == 0:
        return n
    seen = 0
    group = 1 if v.ne(p, MASK, 2) > 1 else group_size(p)
    r = first
    while r < first + count and seen < n:
        at = mask_address(p, pair, r) + 2 * key
        seen = max(seen, last_visible(at, n))
        v.prefetch(at + count // group * v.nb(p, MASK, 1))
        v.prefetch(at + count // group * v.nb(p, MASK, 1) + 64)
        r = (r // group + 1) * group
    return seen


@fn
def query_address(p, pair, r):
    """Return the address of row r of the queries."""
    shift = r // group_size(p) * v.nb(p, Q, 1) + pair // v.ne(p, K, 2) * v.nb(p, Q, 3)
    return v.data(p, Q) + query_head(p, pair, r) * v.nb(p, Q, 2) + shift


@fn
def scores_scale(p):
    """Return the factor of products of queries and keys: scale, divided by the logit softcap."""
    scale, cap = v.op_f32(p, 0), v.op_f32(p, 2)
    return scale if cap == 0.0 else scale / cap


@fn
def query_head(p, pair, r):
    """Return the query head of row r."""
    group = group_size(p)
    return pair % v.ne(p, K, 2) * group + r % group


@fn
def kv_address(p, k, pair, key):
    """Return the address of a row of keys (k = K) or values (k = V)."""
    n_head_kv = v.ne(p, K, 2)
    head = pair % n_head_kv * v.nb(p, k, 2) + pair // n_head_kv * v.nb(p, k, 3)
    return v.data(p, k) + key * v.nb(p, k, 1) + head


@fn
def mask_scores(s, i, n, mask, slope, cap):
    """Return scores s of keys i, i + 1, ... with softcap and slope * mask; past key n: -inf."""
    if cap != 0.0:
        s = v.vtanh(s) * cap
    if mask != 0:
        bias = v.f16_load_n(mask + 2 * i, n - i) * slope
        s = v.select(bias == MINUS_INFINITY, MINUS_INFINITY, s + bias)  # even if s is NaN
    return v.select(v.iota() < n - i, s, MINUS_INFINITY)


@fn
def add_bias(x, n, mask, slope, cap):
    """Apply softcap and slope * mask to n scores x in place; return a vector of lane maxima.

    Scores after the n-th in the last vector become -inf.
    """
    top = v.f32(MINUS_INFINITY)
    for i in range(0, n, LANES):
        s = mask_scores(v.f32_load(x + 4 * i), i, n, mask, slope, cap)
        v.store(x + 4 * i, s)
        top = v.vmax(s, top)
    return top


@fn
def weigh(x, n, mask, cap, state):
    """Turn n scores x into weights exp(score - maximum) in place; zeros fill the last vector.

    Updates maximum and sum of the state. Its factor rescales the weighted sums of earlier values to
    the new maximum.
    """
    before = v.ld_f32(state + TOP)
    top = max(before, v.vmaxval(add_bias(x, n, mask, v.ld_f32(state + SLOPE), cap)))
    base = top if top > MINUS_INFINITY else v.float32(0.0)
    total = v.f32(0.0)
    for i in range(0, n, LANES):
        e = v.vexp(v.f32_load(x + 4 * i) - base)
        v.store(x + 4 * i, e)
        total = total + e
    factor = v.float32(1.0)
    if top > before:
        factor = v.lane(v.vexp(v.f32(before - base)), 0)
    v.st_f32(state + TOP, top)
    v.st_f32(state + TOTAL, v.ld_f32(state + TOTAL) * factor + v.vsum(total))
    v.st_f32(state + FACTOR, factor)


@fn
def weigh_row(p, pair, r, key, n, x, state):
    """Call `weigh` for row r and the n keys from `key` on."""
    mask = mask_address(p, pair, r)
    weigh(x, n, mask + 2 * key if mask != 0 else 0, v.op_f32(p, 2), state)


@fn
def start_row(p, pair, r, state, sums, step):
    """Initialize the state of row r and clear its sums: vectors `step` bytes apart."""
    v.st_f32(state + TOP, MINUS_INFINITY)
    v.st_f32(state + TOTAL, 0.0)
    v.st_f32(state + FACTOR, 0.0)
    v.st_f32(state + SLOPE, alibi_slope(query_head(p, pair, r), v.ne(p, Q, 2), v.op_f32(p, 1)))
    for i in range(0, v.ne(p, V, 0), LANES):
        v.store(sums + i // LANES * step, v.f32(0.0))


@routine
def is_spoilt(p, sums, step):
    """Return True if a masked cell may have caused a NaN or infinity in a row's sums.

    Masked values are added with weight 0. This is wrong if they are not finite: an old cell of
    another sequence may hold anything. The caller then recomputes its rows without masked cells.
    """
    if v.data(p, MASK) == 0:
        return False
    bad = v.f32(0.0)
    for i in range(0, v.ne(p, V, 0), LANES):
        bad = v.fma(v.f32_load(sums + i // LANES * step), 0.0, bad)
    return v.vany(bad != 0.0)


# ---- shared scratch: units taken, finished parts per block of rows, partial results


@fn
def counters_bytes(blocks: int) -> int:
    """Return the bytes of the counters: units taken, and finished parts per block of rows.

    The partial results follow the counters.
    """
    return 8 * pad_to_lanes(1 + blocks)


@fn
def partial_bytes(dv: int) -> int:
    """Return the bytes of a row's partial result: maximum and sum, then weighted values."""
    return WORD + 4 * pad_to_lanes(dv)


def shared_bytes(node: Tensor, blocks: int, parts: int) -> int:
    q, values = node.source(0), node.source(2)
    partials = q.n_rows * parts * partial_bytes(values.ne[0]) if parts > 1 else 0
    return counters_bytes(blocks) + partials


@kernel(reads=())
def flash_start(p, ith, nth):
    """Reset the counters of units taken and of finished parts."""
    if ith == 0:
        for i in range(1 + v.extra(p, BLOCKS)):
            v.st_i64(v.shared(p) + 8 * i, 0)


@fn
def is_last(p, block, parts):
    """Count a finished part of a block of rows; return True if it is the last part."""
    return v.atomic_add(v.shared(p) + 8 * (1 + block), 1) == parts - 1


@fn
def partial_address(p, pair, r, part, parts):
    """Return the address of row r's partial result for a part of the keys."""
    index = (pair * v.ne(p, Q, 1) * group_size(p) + r) * parts + part
    first = v.shared(p) + counters_bytes(v.extra(p, BLOCKS))
    return first + index * partial_bytes(v.ne(p, V, 0))


@fn
def result_factor(p, head, top, total):
    """Return the final factor of weighted sums: 1 / total, with the attention sink in the total."""
    if v.data(p, SINKS) != 0:
        sink = v.ld_f32(v.data(p, SINKS) + 4 * head)
        above = max(sink, top)
        scale = v.expf(top - above)
        return scale / (total * scale + v.expf(sink - above))
    return v.float32(0.0) if total == 0.0 else v.float32(1.0 / total)


@fn
def result_address(p, pair, r):
    """Return the address of row r of the result."""
    n_head_kv = v.ne(p, K, 2)
    shift = r // group_size(p) * v.nb(p, 0, 2) + pair // n_head_kv * v.nb(p, 0, 3)
    return v.data(p, 0) + query_head(p, pair, r) * v.nb(p, 0, 1) + shift


@routine
def finish_row(p, pair, r, part, parts, state, sums, step):
    """Store row r, or its partial result if there are several parts of the keys.

    sums: the row's weighted sums, vectors `step` bytes apart.
    """
    n = v.ne(p, 0, 0)
    top, total = v.ld_f32(state + TOP), v.ld_f32(state + TOTAL)
    factor = v.float32(1.0)
    to = result_address(p, pair, r)
    if parts > 1:
        to = partial_address(p, pair, r, part, parts)
        v.st_f32(to, top)
        v.st_f32(to + 4, total)
        to += WORD
    else:
        factor = result_factor(p, query_head(p, pair, r), top, total)
    for i in range(0, n, LANES):
        v.store_n(to + 4 * i, v.f32_load(sums) * factor, n - i)
        sums += step


@routine
def merge_row(p, pair, r, parts):
    """Compute row r of the result from the partial results of all parts of the keys."""
    n = v.ne(p, 0, 0)
    size = partial_bytes(n)
    first = partial_address(p, pair, r, 0, parts)
    top = v.float32(MINUS_INFINITY)
    for i in range(parts):
        top = max(top, v.ld_f32(first + i * size))
    base = top if top > MINUS_INFINITY else v.float32(0.0)
    total = v.float32(0.0)
    for i in range(parts):
        weight = v.expf(v.ld_f32(first + i * size) - base)
        v.st_f32(first + i * size, weight)
        total += weight * v.ld_f32(first + i * size + 4)
    factor = result_factor(p, query_head(p, pair, r), top, total)
    to = result_address(p, pair, r)
    for c in range(0, n, LANES):
        s = v.f32(0.0)
        for i in range(parts):
            at = first + i * size
            s = v.fma(v.f32_load(at + WORD + 4 * c), v.f32_bcast(at), s)
        v.store_n(to + 4 * c, s * factor, n - c)


@fn
def merge_parts(p, pair, first, n_rows, block, parts):
    """Count a finished part of a block of rows; merge the rows if it is the last part."""
    if parts > 1 and is_last(p, block, parts):
        for r in range(first, first + n_rows):
            merge_row(p, pair, r, parts)
