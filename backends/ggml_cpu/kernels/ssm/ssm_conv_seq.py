"""SSM_CONV_SEQ: the convolution that also returns the last inputs of each sequence."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.faults import in_range
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels._moves import copy_bytes

S, X, W, SQ, SAVED = 1, 2, 3, 4, 5


@fn
def inputs_address(p, seq, channel):
    """Return the address of a channel's last inputs in a sequence, stored after the outputs."""
    d_conv, n_channels, n_tokens = v.ne(p, W, 0), v.ne(p, W, 1), v.ne(p, X, 1)
    outputs = n_channels * n_tokens
    return v.data(p, 0) + 4 * (outputs + d_conv * (seq * n_channels + channel))


@fn
def push_input(p, t, seq, channel):
    """Push a token's input into its sequence; return the output."""
    d_conv, at = v.ne(p, W, 0), inputs_address(p, seq, channel)
    weights = v.data(p, W) + 4 * d_conv * channel
    total = v.float32(0.0)
    for j in range(d_conv - 1):
        x = v.ld_f32(at + 4 * j + 4)
        v.st_f32(at + 4 * j, x)
        total += x * v.ld_f32(weights + 4 * j)
    x = v.ld_f32(v.data(p, X) + t * v.nb(p, X, 1) + 4 * channel)
    v.st_f32(at + 4 * (d_conv - 1), x)
    return total + x * v.ld_f32(weights + 4 * (d_conv - 1))


@fn
def share(p, t, channel):
    """Copy the channel's state to the other sequences of the token."""
    n_seqs, size = v.ne(p, S, 2), 4 * v.ne(p, W, 0)
    first = v.data(p, SQ) + 4 * t * n_seqs
    i, other = 1, v.ld_i32(first)
    source = inputs_address(p, other, channel)
    while i < n_seqs:
        other = v.ld_i32(first + 4 * i)
        if other < 0 or other >= n_seqs:
            break
        copy_bytes(inputs_address(p, other, channel), source, size)
        i += 1


@kernel("SSM_CONV_SEQ")
def ssm_conv_seq_f32(p, ith, nth):
    """Process all tokens for a thread's range of channels."""
    d_conv, n_channels, n_tokens = v.ne(p, W, 0), v.ne(p, W, 1), v.ne(p, X, 1)
    start, stop = v.split(n_channels, ith, nth)
    for seq in range(v.ne(p, S, 2)):
        for c in range(start, stop):
            at, s = (
                inputs_address(p, seq, c),
                v.data(p, S) + c * v.nb(p, S, 1) + seq * v.nb(p, S, 2),
            )
            v.st_f32(at, v.float32(0.0))
            copy_bytes(at + 4, s, 4 * (d_conv - 1))
    for t in range(n_tokens):
        seq = v.ld_i32(v.data(p, SQ) + 4 * t * v.ne(p, S, 2))
        if not in_range(p, seq, v.ne(p, S, 2)):
            continue
        for c in range(start, stop):
            v.st_f32(v.data(p, 0) + 4 * (t * n_channels + c), push_input(p, t, seq, c))
            share(p, t, c)
            if v.data(p, SAVED) != 0:
                to = v.data(p, SAVED) + 4 * (d_conv - 1) * (t * n_channels + c)
                copy_bytes(to, inputs_address(p, seq, c) + 4, 4 * (d_conv - 1))
