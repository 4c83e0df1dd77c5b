"""Unary functions and gated linear units."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import (
    CHUNK,
    FLOATS,
    both,
    chunks_of,
    dense_rows,
    n_rows,
    row_at,
    runs_of,
    types_are,
)


def _unary(op, apply, element):
    """dst = apply(src0) for one float type."""
    load, load_n, size = element.load, element.load_n, element.size
    store, store_n = element.store, element.store_n

    @kernel(
        op,
        when=both(types_are(element.name, element.name), dense_rows),
        name=f"{op.lower()}_{element.name}",
    )
    def unary(p, ith, nth):
        n, runs = runs_of(p, size)
        pieces = chunks_of(n)
        start, stop = v.split(runs * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            end = min(n, c + CHUNK)
            while c + v.LANES <= end:
                store(d + c * size, apply(load(x + c * size)))
                c += v.LANES
            if c < end:
                store_n(d + c * size, apply(load_n(x + c * size, end - c)), end - c)


@fn
def absolute(x):
    return v.vabs(x)


@fn
def sgn(x):
    return v.select(x > 0.0, 1.0, v.select(x < 0.0, -1.0, x * 0.0))


@fn
def neg(x):
    return -x


@fn
def step(x):
    return v.select(x > 0.0, 1.0, x * 0.0)


@fn
def tanh(x):
    return v.vtanh(x)


@fn
def elu(x):
    return v.select(x > 0.0, x, expm1(x))


@fn
def relu(x):
    return v.select(x > 0.0, x, v.f32(0.0))


@fn
def sigmoid(x):
    return v.vsigmoid(x)


@fn
def gelu(x):
    return v.vgelu(x)


@fn
def gelu_quick(x):
    return v.vgelu_quick(x)


@fn
def silu(x):
    return v.vsilu(x)


@fn
def hardsigmoid(x):
    return v.vmin(1.0, v.vmax(0.0, (x + 3.0) / 6.0))


@fn
def hardswish(x):
    return x * hardsigmoid(x)


@fn
def exp(x):
    return v.vexp(x)


@fn
def expm1(x):
    """e**x - 1, without cancellation near 0: there tanh(x/2) * (e**x + 1)."""
    e = v.vexp(x)
    return v.select(v.vabs(x) < 0.5, v.vtanh(x * 0.5) * (e + 1.0), e - 1.0)


@fn
def softplus(x):
    return v.vsoftplus(x)


@fn
def gelu_erf(x):
    return v.vgelu_erf(x)


@fn
def floor(x):
    return v.vfloor(x)


@fn
def ceil(x):
    return v.vceil(x)


@fn
def round_half_away(x):
    t = v.vtrunc(x)
    return v.select(v.vabs(x - t) >= 0.5, t + v.copysign(1.0, x), t)


@fn
def trunc(x):
    return v.vtrunc(x)


@fn
def sqr(x):
    return x * x


@fn
def sqrt(x):
    return v.vsqrt(x)


@fn
def log(x):
    return v.vlog(x)


@fn
def sin(x):
    """Sine, lane by lane through libm."""
    y = x
    for i in range(v.LANES):
        y = v.set_lane(y, i, v.sinf(v.lane(x, i)))
    return y


@fn
def cos(x):
    """Cosine, lane by lane through libm."""
    y = x
    for i in range(v.LANES):
        y = v.set_lane(y, i, v.cosf(v.lane(x, i)))
    return y


for _op, _apply in (
    ("ABS", absolute), ("SGN", sgn), ("NEG", neg), ("STEP", step), ("TANH", tanh), ("ELU", elu),
    ("RELU", relu), ("SIGMOID", sigmoid), ("GELU", gelu), ("GELU_QUICK", gelu_quick),
    ("SILU", silu), ("HARDSWISH", hardswish), ("HARDSIGMOID", hardsigmoid), ("EXP", exp),
    ("EXPM1", expm1), ("SOFTPLUS", softplus), ("GELU_ERF", gelu_erf), ("FLOOR", floor),
    ("CEIL", ceil), ("ROUND", round_half_away), ("TRUNC", trunc), ("SQR", sqr), ("SQRT", sqrt),
    ("LOG", log), ("SIN", sin), ("COS", cos),
):  # fmt: skip
    for _e in FLOATS:
        _unary(_op, _apply, _e)


def _glu(op, act, element):
    """dst = act(gate) * value; gate and value are src0 and src1, or the halves of src0's rows."""
    load, load_n, size = element.load, element.load_n, element.size
    store, store_n = element.store, element.store_n

    @kernel(
        op,
        when=both(types_are(element.name, element.name), dense_rows),
        name=f"{op.lower()}_{element.name}",
    )
    def glu(p, ith, nth):
        n = v.ne(p, 0, 0)
        pieces = chunks_of(n)
        swapped = v.op_i32(p, 1) != 0
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * CHUNK
            d, g = row_at(p, 0, r), row_at(p, 1, r)
            if v.data(p, 2) != 0:
                x = row_at(p, 2, r)
            elif swapped:
                x = g
                g = x + n * size
            else:
                x = g + n * size
            end = min(n, c + CHUNK)
            while c + v.LANES <= end:
                store(d + c * size, act(p, load(g + c * size), load(x + c * size)))
                c += v.LANES
            if c < end:
                y = act(p, load_n(g + c * size, end - c), load_n(x + c * size, end - c))
                store_n(d + c * size, y, end - c)


@fn
def reglu(p, g, x):
    return relu(g) * x


@fn
def geglu(p, g, x):
    return gelu(g) * x


@fn
def swiglu(p, g, x):
    return silu(g) * x


@fn
def geglu_erf(p, g, x):
    return gelu_erf(g) * x


@fn
def geglu_quick(p, g, x):
    return gelu_quick(g) * x


@fn
def swiglu_oai(p, g, x):
    alpha, limit = v.op_f32(p, 2), v.op_f32(p, 3)
    g = v.vmin(g, limit)
    return g * v.vsigmoid(g * alpha) * (v.vmin(v.vmax(x, -limit), limit) + 1.0)


for _op, _act in (
    ("REGLU", reglu), ("GEGLU", geglu), ("SWIGLU", swiglu), ("GEGLU_ERF", geglu_erf),
    ("GEGLU_QUICK", geglu_quick), ("SWIGLU_OAI", swiglu_oai),
):  # fmt: skip
    for _e in FLOATS:
        _glu(_op, _act, _e)
