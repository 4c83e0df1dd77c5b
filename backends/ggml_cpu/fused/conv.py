"""The delta net's short convolution: CONCAT, SSM_CONV and SILU without the transposed copy.

The graph puts the last inputs of each channel before the new ones, [d_conv - 1 + T, C, B], time
fastest. Here the new inputs are read as they come, channel fastest, and time is never transposed.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.step import Step
from ggml_cpu.window import Window, rewrite
from ggml_py.tensor import Tensor
from ggml_py.types import F32

CHANNELS = 256  # a thread's piece: its rows of inputs and weights stay in the L1 cache
MAX_CONV = 16


def padded(n: int) -> int:
    """Channels of a table's row."""
    return -(-n // CHANNELS) * CHANNELS


def tables_bytes(node: Tensor, nth: int) -> tuple[int, int]:
    """Weights, and the earlier inputs of every sequence, channel fastest."""
    n_channels, _, n_seqs, _ = node.ne
    return 4 * padded(n_channels) * MAX_CONV * (1 + n_seqs), 0


@fn
def transposed(src, stride, n_rows, start, stop, dst, width):
    """dst[j][c] = src[c * stride + j], rows of `width`."""
    for c in range(start, stop):
        for j in range(n_rows):
            v.st_f32(dst + 4 * (j * width + c), v.ld_f32(src + c * stride + 4 * j))


@kernel()
def conv_tables(p, ith, nth):
    """Weights [d_conv][C], then the state [d_conv - 1][C] of each sequence, to shared scratch."""
    n_channels, d_conv = v.ne(p, 0, 0), v.ne(p, 3, 0)
    width = v.extra(p, 0)
    start, stop = v.split(n_channels, ith, nth)
    transposed(v.data(p, 3), v.nb(p, 3, 1), d_conv, start, stop, v.shared(p), width)
    for b in range(v.ne(p, 0, 2)):
        to = v.shared(p) + 4 * width * (d_conv + b * (d_conv - 1))
        source = v.data(p, 1) + b * v.nb(p, 1, 2)
        transposed(source, v.nb(p, 1, 1), d_conv - 1, start, stop, to, width)


@fn
def conv_at(t, d_conv, c, n, x, x_stride, state, w, width):
    """sum_j input[t + j] * w[j] of the channels from c on; inputs before time 0 are the state."""
    y = v.f32(0.0)
    for j in range(d_conv):
        u = t + j - (d_conv - 1)
        if u >= 0:
            z = v.f32_load_n(x + u * x_stride + 4 * c, n - c)
        else:
            z = v.f32_load(state + 4 * ((u + d_conv - 1) * width + c))
        y = v.fma(z, v.f32_load(w + 4 * (j * width + c)), y)
    return y


@fn
def conv4_at(c, x, x_stride, w, width):
    """The same for four taps, all of them inputs: x is the first of them."""
    y = v.f32_load(x + 4 * c) * v.f32_load(w + 4 * c)
    y = v.fma(v.f32_load(x + x_stride + 4 * c), v.f32_load(w + 4 * (width + c)), y)
    y = v.fma(v.f32_load(x + 2 * x_stride + 4 * c), v.f32_load(w + 4 * (2 * width + c)), y)
    return v.fma(v.f32_load(x + 3 * x_stride + 4 * c), v.f32_load(w + 4 * (3 * width + c)), y)


@kernel(
    prepare=(conv_tables,), scratch=tables_bytes, extra=lambda node: (padded(node.ne[0]),)
)  # fmt: skip
def conv_silu(p, ith, nth):
    """dst [C, T, B] = silu(conv(src0 [d_conv - 1, C, B] before src1 [T, C, B], src2 [d_conv, C])).

    Time runs backwards, so dst may be the memory of src1.
    """
    n_channels, n_tokens, d_conv = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 3, 0)
    width, x_stride = v.extra(p, 0), v.nb(p, 2, 0)
    pieces = (n_channels + CHANNELS - 1) // CHANNELS
    start, stop = v.split(pieces * v.ne(p, 0, 2), ith, nth)
    for i in range(start, stop):
        first, b = i % pieces * CHANNELS, i // pieces
        n = min(CHANNELS, n_channels - first)
        w = v.shared(p) + 4 * first
        state = w + 4 * width * (d_conv + b * (d_conv - 1))
        x = v.data(p, 2) + b * v.nb(p, 2, 2) + 4 * first
        y = v.data(p, 0) + b * v.nb(p, 0, 2) + 4 * first
        for k in range(n_tokens):
            t = n_tokens - 1 - k
            out = y + t * v.nb(p, 0, 1)
            if d_conv == 4 and t >= 3 and n == CHANNELS:
                for c in range(0, CHANNELS, v.LANES):
                    z = conv4_at(c, x + (t - 3) * x_stride, x_stride, w, width)
                    v.store(out + 4 * c, v.vsilu(z))
            else:
                for c in range(0, n, v.LANES):
                    z = conv_at(t, d_conv, c, n, x, x_stride, state, w, width)
                    v.store_n(out + 4 * c, v.vsilu(z), n - c)


@kernel()
def conv_state(p, ith, nth):
    """dst [(d_conv - 1) * C, B]: the last inputs of each channel, from src0 and src1 as above."""
    keep, n_channels, n_tokens = v.ne(p, 1, 0), v.ne(p, 1, 1), v.ne(p, 2, 0)
    for b in range(v.ne(p, 1, 2)):
        start, stop = v.split(n_channels, ith, nth)
        for c in range(start, stop):
            d = v.data(p, 0) + b * v.nb(p, 0, 1) + 4 * c * keep
            s = v.data(p, 1) + b * v.nb(p, 1, 2) + c * v.nb(p, 1, 1)
            x = v.data(p, 2) + b * v.nb(p, 2, 2) + 4 * c
            for j in range(keep):
                u = n_tokens + j
                if u < keep:
                    v.st_f32(d + 4 * j, v.ld_f32(s + 4 * u))
                else:
                    v.st_f32(d + 4 * j, v.ld_f32(x + (u - keep) * v.nb(p, 2, 0)))


def is_tail(t: Tensor | None, joined: Tensor) -> bool:
    """Whether t looks at the last inputs of every channel of the joined ones."""
    if t is None or t.ne[1:3] != joined.ne[1:3] or t.nb[1:3] != joined.nb[1:3]:
        return False
    return t.view_offs == 4 * (joined.ne[0] - t.ne[0])


@rewrite("CONCAT")
def short_conv(w: Window, i: int) -> None:
    joined = w.step(i).node
    state, x = joined.src[0], joined.src[1]
    if joined.view_src is not None or joined.type is not F32 or joined.param("dim") != 0:
        return
    if state is None or x is None:
        return
    if x.nb[1] != 4 or state.nb[0] != 4 or joined.ne[3] != 1 or not x.ne[0]:
        return
    users = w.readers_of(joined)
    convs = [j for j in users if w.op(j) == "SSM_CONV"]
    copies = [j for j in users if w.op(j) == "CPY"]
    if len(convs) != 1 or len(copies) != 1 or len(users) != 2 or copies[0] > convs[0]:
        return
    merge_conv(w, i, copies[0], convs[0], state, x)


def merge_conv(w: Window, i: int, copy: int, conv: int, state: Tensor, x: Tensor) -> None:
    """Merge where the copy keeps the state's tail and the convolution is followed by SILU."""
    joined, kept, y = w.step(i).node, w.step(copy).node, w.step(conv).node
    last = w.only_reader(conv)
    weight = y.src[1]
    if last < 0 or w.op(last) != "SILU" or weight is None or weight.ne[0] > MAX_CONV:
        return
    result = w.step(last).node
    n_state = state.ne[0] * state.ne[1]
    dense = kept.ne == (n_state, state.ne[2], 1, 1) and kept.type is F32 and kept.nb[0] == 4
    if not dense or not is_tail(kept.src[0], joined) or weight.type is not F32:
        return
    if not result.is_contiguous() or w.step(i).node.ne[0] != state.ne[0] + x.ne[0]:
        return
    forward = Step(conv_silu, result, (result, state, x, weight), b"\0")
    if w.merge((i, conv, last), last, forward, aliases=(x,), staged=(state, weight)):
        w.merge((i, copy), copy, Step(conv_state, kept, (kept, state, x), b"\0"))
