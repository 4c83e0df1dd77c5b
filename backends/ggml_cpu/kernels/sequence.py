"""ARANGE and TIMESTEP_EMBEDDING: arithmetic sequences and sinusoidal embeddings."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import kernel
from ggml_cpu.kernels._common import dense_rows, require_all, types_are


@kernel("ARANGE", when=types_are("f32"))
def arange_f32(p, ith, nth):
    first, step = v.op_f32(p, 0), v.op_f32(p, 2)
    start, stop = v.split(v.ne(p, 0, 0), ith, nth)
    for i in range(start, stop):
        v.st_f32(v.data(p, 0) + 4 * i, first + step * v.float32(i))


@kernel("TIMESTEP_EMBEDDING", when=require_all(types_are("f32", "f32"), dense_rows))
def timestep_embedding_f32(p, ith, nth):
    dim, half = v.op_i32(p, 0), v.op_i32(p, 0) // 2
    rate = -v.logf(v.float32(v.op_i32(p, 1)))
    start, stop = v.split(v.ne(p, 0, 1), ith, nth)
    for i in range(start, stop):
        d, time = v.data(p, 0) + i * v.nb(p, 0, 1), v.ld_f32(v.data(p, 1) + 4 * i)
        for j in range(half):
            angle = time * v.expf(rate * v.float32(j) / v.float32(half))
            v.st_f32(d + 4 * j, v.cosf(angle))
            v.st_f32(d + 4 * (j + half), v.sinf(angle))
        if dim % 2 == 1:
            v.st_f32(d + 4 * (dim - 1), v.float32(0.0))
