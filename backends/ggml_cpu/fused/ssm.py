"""Short convolution of delta net models: CONCAT, SSM_CONV and SILU without a transposed copy.

The graph concatenates the last inputs and the new inputs of each channel, [d_conv - 1 + T, C, B],
contiguous in time. These kernels read the new inputs in their layout, contiguous in channels.
"""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.fused import _few_tokens
from ggml_cpu.fusion import fuse
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.step import Step
from ggml_py.fusion import f32_rows
from ggml_py.fusion.pattern import Match
from ggml_py.patterns.ssm import CONCAT_CONV_SILU
from ggml_py.tensor import Tensor

CHANNELS = 256  # channels per work item: its rows of inputs and weights fit the L1 cache


def pad_channels(n: int) -> int:
    """Return n channels rounded up to CHANNELS: the row length of the tables."""
    return -(-n // CHANNELS) * CHANNELS


def tables_bytes(m: Match) -> int:
    """Return the scratch bytes for transposed weights and earlier inputs of all sequences."""
    if _few_tokens.takes(m):
        return 0
    n_channels, _, n_seqs, _ = m["conv"].ne
    return 4 * pad_channels(n_channels) * (m["weight"].ne[0] + m["state"].ne[0] * n_seqs)


@fn
def transpose_channels(src, stride, n_rows, start, stop, dst, width):
    """Transpose channels start .. stop: dst[j][c] = src[c * stride + j], rows of `width`."""
    for c in range(start, stop):
        for j in range(n_rows):
            v.st_f32(dst + 4 * (j * width + c), v.ld_f32(src + c * stride + 4 * j))


@kernel()
def conv_tables(p, ith, nth):
    """Store weights [d_conv][C] and then each sequence's state [d_conv - 1][C] in scratch."""
    n_channels, d_conv = v.ne(p, 0, 0), v.ne(p, 3, 0)
    width = v.extra(p, 0)
    start, stop = v.split(n_channels, ith, nth)
    transpose_channels(v.data(p, 3), v.nb(p, 3, 1), d_conv, start, stop, v.shared(p), width)
    for b in range(v.ne(p, 0, 2)):
        to = v.shared(p) + 4 * width * (d_conv + b * (d_conv - 1))
        source = v.data(p, 1) + b * v.nb(p, 1, 2)
        transpose_channels(source, v.nb(p, 1, 1), d_conv - 1, start, stop, to, width)


@fn
def convolve(t, d_conv, c, n, x, x_stride, state, w, width):
    """Return sum_j input[t + j] * w[j] for channels from c on; the state precedes time 0."""
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
def convolve4(c, x, x_stride, w, width):
    """Return the sum for four taps that are all new inputs; x is the first."""
    y = v.f32_load(x + 4 * c) * v.f32_load(w + 4 * c)
    y = v.fma(v.f32_load(x + x_stride + 4 * c), v.f32_load(w + 4 * (width + c)), y)
    y = v.fma(v.f32_load(x + 2 * x_stride + 4 * c), v.f32_load(w + 4 * (2 * width + c)), y)
    return v.fma(v.f32_load(x + 3 * x_stride + 4 * c), v.f32_load(w + 4 * (3 * width + c)), y)


@kernel(prepare=(conv_tables,), extra=lambda node: (pad_channels(node.ne[0]),))
def conv_silu(p, ith, nth):
    """dst [C, T, B] = silu(conv(concat(src0, src1), src2)).

    src0 [d_conv - 1, C, B], src1 [T, C, B], src2 [d_conv, C]. The loop runs backwards in time, so
    dst may alias src1.
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
                    z = convolve4(c, x + (t - 3) * x_stride, x_stride, w, width)
                    v.store(out + 4 * c, v.vsilu(z))
            else:
                for c in range(0, n, v.LANES):
                    z = convolve(t, d_conv, c, n, x, x_stride, state, w, width)
                    v.store_n(out + 4 * c, v.vsilu(z), n - c)


def first_kept(node: Tensor) -> tuple[int]:
    """Return the index of the first input that CPY saves, in the concatenation of src0 and src1."""
    window = node.src[0]
    assert window is not None
    return (window.view_offs // window.nb[0],)


@kernel(extra=first_kept)
def conv_state(p, ith, nth):
    """dst [(d_conv - 1) * C, B] or [d_conv - 1, C, B] = inputs of each channel from `first` on.

    The inputs are concat(src0, src1), see `conv_silu`.
    """
    keep, n_channels, first = v.ne(p, 1, 0), v.ne(p, 1, 1), v.extra(p, 0)
    for b in range(v.ne(p, 1, 2)):
        start, stop = v.split(n_channels, ith, nth)
        for c in range(start, stop):
            d = v.data(p, 0) + 4 * c * keep
            d += b * (v.nb(p, 0, 2) if v.ne(p, 0, 2) > 1 else v.nb(p, 0, 1))
            s = v.data(p, 1) + b * v.nb(p, 1, 2) + c * v.nb(p, 1, 1)
            x = v.data(p, 2) + b * v.nb(p, 2, 2) + 4 * c
            for j in range(keep):
                u = first + j
                if u < keep:
                    v.st_f32(d + 4 * j, v.ld_f32(s + 4 * u))
                else:
                    v.st_f32(d + 4 * j, v.ld_f32(x + (u - keep) * v.nb(p, 2, 0)))


def channels_in_rows(m: Match) -> str:
    """Return why channels of the inputs, or saved values of a channel, are not adjacent, or ""."""
    x = m["x"]
    if x.nb[1] != 4 or any(kept.nb[0] != 4 for kept in m.all_nodes("kept")) or x.is_empty():
        return f"needs adjacent channels; got {x} stored in {m['kept']}"
    return f32_rows("state", "weight")(m)


def over_the_inputs(m: Match) -> Tensor | None:
    """Return x if its layout allows the result to overwrite it (see `conv_silu`), else None."""
    x, y = m["x"], m["conv"]
    return x if (x.nb[1], x.nb[0], x.nb[2]) == y.nb[:3] else None


@fuse(CONCAT_CONV_SILU, when=channels_in_rows, over=over_the_inputs, scratch=tables_bytes)
def short_conv(m: Match) -> list[Step]:
    state, x = m["state"], m["x"]
    y = Tensor(m["y"].type, m["conv"].ne)  # the shape of m["y"] may differ
    y.buffer, y.offset = m["y"].buffer, m["y"].offset
    if _few_tokens.takes(m):
        return [_few_tokens.step(m, y)]
    keep = [Step(conv_state, kept, (kept, state, x)) for kept in m.all_nodes("kept")]
    return [*keep, Step(conv_silu, m["conv"], (y, state, x, m["weight"]), scratch=m.scratch)]
