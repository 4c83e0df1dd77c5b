"""The causal depthwise convolution in front of a recurrence."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels.common import both, dense_rows, types_are


@kernel("SSM_CONV", when=both(types_are("f32", "f32", "f32"), dense_rows))
def ssm_conv_f32(p, ith, nth):
    """LANES tokens of a channel at a time; the result has channels side by side."""
    n_channels, n_tokens, d_conv = v.ne(p, 0, 0), v.ne(p, 0, 1), v.ne(p, 2, 0)
    start, stop = v.split(n_channels * v.ne(p, 0, 2), ith, nth)
    for u in range(start, stop):
        c, b = u % n_channels, u // n_channels
        x = v.data(p, 1) + c * v.nb(p, 1, 1) + b * v.nb(p, 1, 2)
        w = v.data(p, 2) + c * v.nb(p, 2, 1)
        d = v.data(p, 0) + 4 * c + b * v.nb(p, 0, 2)
        for t in range(0, n_tokens, v.LANES):
            n = min(v.LANES, n_tokens - t)
            y = v.f32(0.0)
            for j in range(d_conv):
                y = v.fma(v.f32_load_n(x + 4 * (t + j), n), v.ld_f32(w + 4 * j), y)
            for i in range(n):
                v.st_f32(d + (t + i) * v.nb(p, 0, 1), v.lane(y, i))
