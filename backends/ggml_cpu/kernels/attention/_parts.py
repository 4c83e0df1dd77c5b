"""What the two ways to compute FLASH_ATTN_EXT share: work units, masks, online softmax, merging.

All query heads that read the same key head, of all tokens, are rows of one matrix: row r is token
r // G, head r % G of the group of G heads. A unit of work is some rows of one such matrix times a
part of the keys; what several parts of the keys give is merged in a last step.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel, routine
from ggml_cpu.kernels._common import padded
from ggml_cpu.kernels.attention._sources import WORD, Accepts
from ggml_cpu.kernels.attention.soft_max import MINUS_INFINITY, slope_of
from ggml_cpu.target import LANES
from ggml_py.tensor import Tensor

KEYS = 64  # keys at a time
# Extra: blocks of rows, then what `kinds_of` tells.
BLOCKS, K_KIND, V_KIND, K_BYTES, V_BYTES = 0, 1, 2, 3, 4
STATE = 16  # bytes of a row's state, f32 each:
TOP, TOTAL, FACTOR, SLOPE = 0, 4, 8, 12  # maximum, sum of weights, see `weigh`, ALiBi slope
MIN_KEYS = 256  # fewest keys worth a part of their own
Q, K, V, MASK, SINKS = 1, 2, 3, 4, 5


def refusal(node: Tensor, name: str, accepts: Accepts) -> str:
    """Why a kernel for these types of keys and values cannot run the node; "" if it can."""
    q, k, values = node.sources(3)
    if q.type.name != "f32" or not accepts(k.type.name, values.type.name):
        return f"needs f32 queries, {name} keys and values; got {q}, {k}, {values}"
    for t in (q, k, values):
        if not t.has_contiguous_rows():
            return f"needs dense rows; {t} has elements {t.nb[0]} bytes apart"
    return ""


@fn
def group_size(p):
    """Query heads that read the same key head."""
    return v.ne(p, Q, 2) // v.ne(p, K, 2)


@fn
def mask_at(p, pair, r):
    """Address of the mask of row r, 0 without a mask; pair = key head + n_head_kv * batch."""
    if v.data(p, MASK) == 0:
        return 0
    group, n_head_kv = group_size(p), v.ne(p, K, 2)
    head = pair % n_head_kv * group + r % group
    i2, i3 = head % v.ne(p, MASK, 2), pair // n_head_kv % v.ne(p, MASK, 3)
    shift = r // group * v.nb(p, MASK, 1) + i2 * v.nb(p, MASK, 2) + i3 * v.nb(p, MASK, 3)
    return v.data(p, MASK) + shift


@fn
def last_visible(mask, n):
    """How many of n keys to look at: up to the last vector with one above -inf in the f16 mask."""
    i = (n - 1) // LANES * LANES
    while i >= 0:
        bias = v.select(v.iota() < n - i, v.f16_load_n(mask + 2 * i, n - i), MINUS_INFINITY)
        if v.vany(bias > MINUS_INFINITY):
            return min(n, i + LANES)
        i -= LANES
    return 0


@fn
def keys_seen(p, pair, first, count, key, n):
    """How many of n keys the rows have to look at: all that follow are hidden from all of them."""
    if v.data(p, MASK) == 0:
        return n
    seen = 0
    group = 1 if v.ne(p, MASK, 2) > 1 else group_size(p)
    r = first
    while r < first + count and seen < n:
        at = mask_at(p, pair, r) + 2 * key
        seen = max(seen, last_visible(at, n))
        v.prefetch(at + count // group * v.nb(p, MASK, 1))
        v.prefetch(at + count // group * v.nb(p, MASK, 1) + 64)
        r = (r // group + 1) * group
    return seen


@fn
def query_at(p, pair, r):
    """Address of row r."""
    shift = r // group_size(p) * v.nb(p, Q, 1) + pair // v.ne(p, K, 2) * v.nb(p, Q, 3)
    return v.data(p, Q) + head_of(p, pair, r) * v.nb(p, Q, 2) + shift


@fn
def scores_scale(p):
    """What products of queries and keys are multiplied by (before the cap, which divides)."""
    scale, cap = v.op_f32(p, 0), v.op_f32(p, 2)
    return scale if cap == 0.0 else scale / cap


@fn
def head_of(p, pair, r):
    """The query head of row r."""
    group = group_size(p)
    return pair % v.ne(p, K, 2) * group + r % group


@fn
def keys_at(p, k, pair, key):
    """Address of a row of keys (k = K) or values (k = V)."""
    n_head_kv = v.ne(p, K, 2)
    head = pair % n_head_kv * v.nb(p, k, 2) + pair // n_head_kv * v.nb(p, k, 3)
    return v.data(p, k) + key * v.nb(p, k, 1) + head


@fn
def biased(s, i, n, mask, slope, cap):
    """Scores from key i of n on: capped, with slope * mask; those past the last are -inf."""
    if cap != 0.0:
        s = v.vtanh(s) * cap
    if mask != 0:
        bias = v.f16_load_n(mask + 2 * i, n - i) * slope
        s = v.select(bias == MINUS_INFINITY, MINUS_INFINITY, s + bias)  # whatever the key holds
    return v.select(v.iota() < n - i, s, MINUS_INFINITY)


@fn
def add_bias(x, n, mask, slope, cap):
    """Cap n scores x, add slope * mask; those past the last become -inf. Returns their maxima, a
    vector."""
    top = v.f32(MINUS_INFINITY)
    for i in range(0, n, LANES):
        s = biased(v.f32_load(x + 4 * i), i, n, mask, slope, cap)
        v.store(x + 4 * i, s)
        top = v.vmax(s, top)
    return top


@fn
def weigh(x, n, mask, cap, state):
    """n scores x to weights exp(score - maximum), in place; zeros fill up the last vector.

    Maximum and sum of the state are brought up to date; its factor is what sums of values weighted
    so far must be multiplied by to fit the new maximum.
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
    """`weigh` for row r and the n keys from `key` on."""
    mask = mask_at(p, pair, r)
    weigh(x, n, mask + 2 * key if mask != 0 else 0, v.op_f32(p, 2), state)


@fn
def start_row(p, pair, r, state, sums, step):
    """Nothing seen yet; `sums`: the row's vectors, `step` bytes apart."""
    v.st_f32(state + TOP, MINUS_INFINITY)
    v.st_f32(state + TOTAL, 0.0)
    v.st_f32(state + FACTOR, 0.0)
    v.st_f32(state + SLOPE, slope_of(head_of(p, pair, r), v.ne(p, Q, 2), v.op_f32(p, 1)))
    for i in range(0, v.ne(p, V, 0), LANES):
        v.store(sums + i // LANES * step, v.f32(0.0))


@routine
def is_spoilt(p, sums, step):
    """Whether a row's sums hold NaN or infinity that may come from a cell hidden by the mask.

    Hidden values are added with weight 0, which is right unless they are not finite: an old cell of
    another sequence may hold anything. Such rows are computed again without the hidden cells.
    """
    if v.data(p, MASK) == 0:
        return False
    bad = v.f32(0.0)
    for i in range(0, v.ne(p, V, 0), LANES):
        bad = v.fma(v.f32_load(sums + i // LANES * step), 0.0, bad)
    return v.vany(bad != 0.0)


# ---- scratch shared by the threads: units taken, parts done of each block of rows, partial results


@fn
def counters_bytes(blocks: int) -> int:
    """Units taken, and parts done of each block; the partial results follow."""
    return 8 * padded(1 + blocks)


@fn
def partial_bytes(dv: int) -> int:
    """Maximum and sum, weighted values."""
    return WORD + 4 * padded(dv)


def shared_bytes(node: Tensor, blocks: int, parts: int) -> int:
    q, values = node.source(0), node.source(2)
    partials = q.n_rows * parts * partial_bytes(values.ne[0]) if parts > 1 else 0
    return counters_bytes(blocks) + partials


@kernel(reads=())
def flash_start(p, ith, nth):
    """No unit is taken, no part done."""
    if ith == 0:
        for i in range(1 + v.extra(p, BLOCKS)):
            v.st_i64(v.shared(p) + 8 * i, 0)


@fn
def is_last(p, block, parts):
    """Whether this was the last part of a block of rows to be done."""
    return v.atomic_add(v.shared(p) + 8 * (1 + block), 1) == parts - 1


@fn
def partial_at(p, pair, r, part, parts):
    """Where a part of the keys leaves maximum, sum and weighted values of row r."""
    index = (pair * v.ne(p, Q, 1) * group_size(p) + r) * parts + part
    first = v.shared(p) + counters_bytes(v.extra(p, BLOCKS))
    return first + index * partial_bytes(v.ne(p, V, 0))


@fn
def result_factor(p, head, top, total):
    """What sums of weighted values are multiplied by in the end; a sink joins the total here."""
    if v.data(p, SINKS) != 0:
        sink = v.ld_f32(v.data(p, SINKS) + 4 * head)
        above = max(sink, top)
        scale = v.expf(top - above)
        return scale / (total * scale + v.expf(sink - above))
    return v.float32(0.0) if total == 0.0 else v.float32(1.0 / total)


@fn
def result_at(p, pair, r):
    """Address of row r of the result."""
    n_head_kv = v.ne(p, K, 2)
    shift = r // group_size(p) * v.nb(p, 0, 2) + pair // n_head_kv * v.nb(p, 0, 3)
    return v.data(p, 0) + head_of(p, pair, r) * v.nb(p, 0, 1) + shift


@routine
def finish_row(p, pair, r, part, parts, state, sums, step):
    """Store a row whose keys have all been seen; `sums`: its vectors, `step` bytes apart."""
    n = v.ne(p, 0, 0)
    top, total = v.ld_f32(state + TOP), v.ld_f32(state + TOTAL)
    factor = v.float32(1.0)
    to = result_at(p, pair, r)
    if parts > 1:
        to = partial_at(p, pair, r, part, parts)
        v.st_f32(to, top)
        v.st_f32(to + 4, total)
        to += WORD
    else:
        factor = result_factor(p, head_of(p, pair, r), top, total)
    for i in range(0, n, LANES):
        v.store_n(to + 4 * i, v.f32_load(sums) * factor, n - i)
        sums += step


@routine
def merge_row(p, pair, r, parts):
    """The result of row r from those of the parts of the keys."""
    n = v.ne(p, 0, 0)
    size = partial_bytes(n)
    first = partial_at(p, pair, r, 0, parts)
    top = v.float32(MINUS_INFINITY)
    for i in range(parts):
        top = max(top, v.ld_f32(first + i * size))
    base = top if top > MINUS_INFINITY else v.float32(0.0)
    total = v.float32(0.0)
    for i in range(parts):
        weight = v.expf(v.ld_f32(first + i * size) - base)
        v.st_f32(first + i * size, weight)
        total += weight * v.ld_f32(first + i * size + 4)
    factor = result_factor(p, head_of(p, pair, r), top, total)
    to = result_at(p, pair, r)
    for c in range(0, n, LANES):
        s = v.f32(0.0)
        for i in range(parts):
            at = first + i * size
            s = v.fma(v.f32_load(at + WORD + 4 * c), v.f32_bcast(at), s)
        v.store_n(to + 4 * c, s * factor, n - c)


@fn
def merge_parts(p, pair, first, n_rows, block, parts):
    """Merge a block of rows if all its parts are done."""
    if parts > 1 and is_last(p, block, parts):
        for r in range(first, first + n_rows):
            merge_row(p, pair, r, parts)
