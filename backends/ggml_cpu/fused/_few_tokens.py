"""Short convolution of few tokens per sequence: one pass over the channels.

The earlier inputs of a channel are contiguous, and so are its weights. The kernel transposes LANES
channels of both to one vector per time; the shuffles cost less than the memory accesses.
"""

from __future__ import annotations

import struct

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.step import Step
from ggml_cpu.target import LANES
from ggml_py.fusion.pattern import Match
from ggml_py.tensor import Tensor

TAPS = 4  # taps of the convolution
FEW = 8  # maximum number of tokens per sequence
MOST = 7  # maximum number of saved states: a parameter block has no space for more
SPAN = 16 * LANES  # channels per work item
WORD = 4 * LANES  # bytes of a vector
STATE, X, W, KEPT = 1, 2, 3, 4


def takes(m: Match) -> bool:
    """Return True if the kernel below can run the match."""
    state, x, weight, kept = m["state"], m["x"], m["weight"], m.all_nodes("kept")
    n_tokens, n_channels = x.ne[:2]
    dense = state.nb[1] == 4 * (TAPS - 1) and weight.nb[1] == 4 * TAPS
    few = n_tokens <= FEW and len(kept) <= MOST
    return weight.ne[0] == TAPS and n_channels % LANES == 0 and dense and few


@fn
def keep(p, time, b, c, s0, s1, s2):
    """Store the last inputs before `time` in the caches that save that time."""
    for i in range(v.op_i32(p, 0)):
        if v.op_i32(p, 1 + i) == time:
            k = KEPT + i
            to = v.data(p, k) + 4 * (TAPS - 1) * c
            to += b * (v.nb(p, k, 2) if v.ne(p, k, 2) > 1 else v.nb(p, k, 1))
            v.store(to, v.mix_thirds(s0, s1, s2, 0))
            v.store(to + WORD, v.mix_thirds(s0, s1, s2, 1))
            v.store(to + 2 * WORD, v.mix_thirds(s0, s1, s2, 2))


@fn
def by_time(w):
    """Return the weights of LANES channels as one vector per tap."""
    w0, w1 = v.f32_load(w), v.f32_load(w + WORD)
    w2, w3 = v.f32_load(w + 2 * WORD), v.f32_load(w + 3 * WORD)
    e, o = v.evens(w0, w1), v.odds(w0, w1)
    f, q = v.evens(w2, w3), v.odds(w2, w3)
    return v.evens(e, f), v.evens(o, q), v.odds(e, f), v.odds(o, q)


@fn
def run_channels(p, b, c):
    """Compute all tokens of LANES channels of a sequence, reading each input before its write."""
    source = v.data(p, STATE) + b * v.nb(p, STATE, 2) + 4 * (TAPS - 1) * c
    x0, x1, x2 = v.f32_load(source), v.f32_load(source + WORD), v.f32_load(source + 2 * WORD)
    s0, s1 = v.every_third(x0, x1, x2, 0), v.every_third(x0, x1, x2, 1)
    s2 = v.every_third(x0, x1, x2, 2)
    w0, w1, w2, w3 = by_time(v.data(p, W) + 4 * TAPS * c)
    keep(p, 0, b, c, s0, s1, s2)
    x, y = v.data(p, X) + b * v.nb(p, X, 2) + 4 * c, v.data(p, 0) + b * v.nb(p, 0, 2) + 4 * c
    for t in range(v.ne(p, X, 0)):
        s3 = v.f32_load(x + t * v.nb(p, X, 0))
        z = v.fma(s3, w3, v.fma(s2, w2, v.fma(s1, w1, s0 * w0)))
        v.store(y + t * v.nb(p, 0, 1), v.vsilu(z))
        s0, s1, s2 = s1, s2, s3
        keep(p, t + 1, b, c, s0, s1, s2)


@kernel()
def conv_few(p, ith, nth):
    """dst [C, T, B] = silu(conv(concat(src0, src1), src2)); dst may alias src1.

    src0 [TAPS - 1, C, B], src1 [T, C, B], src2 [TAPS, C]. The inputs before some times are saved to
    src3, ...
    """
    n_channels = v.ne(p, X, 1)
    pieces = (n_channels + SPAN - 1) // SPAN
    start, stop = v.split(pieces * v.ne(p, X, 2), ith, nth)
    for u in range(start, stop):
        first, b = u % pieces * SPAN, u // pieces
        for c in range(first, min(n_channels, first + SPAN), LANES):
            run_channels(p, b, c)


def step(m: Match, y: Tensor) -> Step:
    """Return the step that computes y [C, T, B]."""
    kept = m.all_nodes("kept")
    firsts = [k.source(0).view_offs // 4 for k in kept]
    params = struct.pack(f"={1 + len(kept)}i", len(kept), *firsts)
    operands = (y, m["state"], m["x"], m["weight"], *kept)
    writes = tuple(range(KEPT, len(operands)))
    return Step(conv_few, m["y"], operands, params, writes=writes)
