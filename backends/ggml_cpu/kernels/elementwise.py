"""Arithmetic with broadcast, unary functions, gated linear units."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from ggml_cpu.kernels.common import (
    BF16,
    CHUNK,
    F16,
    F32,
    FLOATS,
    both,
    chunks_of,
    dense_rows,
    n_rows,
    row_at,
    row_repeated,
    types_are,
)


@fn
def add(x, y):
    return x + y


@fn
def sub(x, y):
    return x - y


@fn
def mul(x, y):
    return x * y


@fn
def div(x, y):
    return x / y


def _binary(op, apply, a, b):
    """dst = apply(src0, src1), src1 repeated to dst's shape in every dimension."""
    a_load, a_load_n, a_size = a.load, a.load_n, a.size
    b_load, b_load_n, b_size = b.load, b.load_n, b.size
    d_store, d_store_n = a.store, a.store_n

    @fn
    def piece(d, x, y, n):
        i = 0
        while i + v.LANES <= n:
            d_store(d + i * a_size, apply(a_load(x + i * a_size), b_load(y + i * b_size)))
            i += v.LANES
        if i < n:
            z = apply(a_load_n(x + i * a_size, n - i), b_load_n(y + i * b_size, n - i))
            d_store_n(d + i * a_size, z, n - i)

    @fn
    def piece_of_one(d, x, y, n):
        """As `piece`, with one element of src1 for all."""
        w = v.f32(v.lane(b_load_n(y, 1), 0))
        i = 0
        while i + v.LANES <= n:
            d_store(d + i * a_size, apply(a_load(x + i * a_size), w))
            i += v.LANES
        if i < n:
            d_store_n(d + i * a_size, apply(a_load_n(x + i * a_size, n - i), w), n - i)

    @kernel(
        op,
        when=both(types_are(a.name, a.name, b.name), dense_rows),
        name=f"{op.lower()}_{a.name}_{b.name}",
    )
    def binary(p, ith, nth):
        n, m = v.ne(p, 0, 0), v.ne(p, 2, 0)
        step = m if 1 < m < n else CHUNK
        pieces = (n + step - 1) // step
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
        for u in range(start, stop):
            r, c = u // pieces, u % pieces * step
            count = min(step, n - c)
            d = row_at(p, 0, r) + c * a_size
            x = row_at(p, 1, r) + c * a_size
            y = row_repeated(p, 2, r)
            if m == 1:
                piece_of_one(d, x, y, count)
            elif m < n:
                piece(d, x, y, count)
            else:
                piece(d, x, y + c * b_size, count)


for _op, _apply in (("ADD", add), ("SUB", sub), ("MUL", mul), ("DIV", div)):
    for _a, _b in ((F32, F32), (F16, F16), (F16, F32), (BF16, BF16), (BF16, F32)):
        _binary(_op, _apply, _a, _b)


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
        n = v.ne(p, 0, 0)
        pieces = chunks_of(n)
        start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
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
    """0.5 x (1 + erf(x / sqrt 2)), lane by lane through libm."""
    y = x
    for i in range(v.LANES):
        z = v.lane(x, i)
        y = v.set_lane(y, i, 0.5 * z * (1.0 + v.erff(z * 0.7071067811865476)))
    return y


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


@kernel("SCALE", when=both(types_are("f32", "f32"), dense_rows))
def scale_f32(p, ith, nth):
    n = v.ne(p, 0, 0)
    s, bias = v.op_f32(p, 0), v.op_f32(p, 1)
    pieces = chunks_of(n)
    start, stop = v.split(n_rows(p, 0) * pieces, ith, nth)
    for u in range(start, stop):
        r, c = u // pieces, u % pieces * CHUNK
        d, x = row_at(p, 0, r), row_at(p, 1, r)
        end = min(n, c + CHUNK)
        while c + v.LANES <= end:
            v.store(d + 4 * c, v.f32_load(x + 4 * c) * s + bias)
            c += v.LANES
        if c < end:
            v.store_n(d + 4 * c, v.f32_load_n(x + 4 * c, end - c) * s + bias, end - c)


def _clamp(element):
    load_n, store_n, size = element.load_n, element.store_n, element.size

    @kernel(
        "CLAMP",
        when=both(types_are(element.name, element.name), dense_rows),
        name=f"clamp_{element.name}",
    )
    def clamp(p, ith, nth):
        n = v.ne(p, 0, 0)
        low, high = v.op_f32(p, 0), v.op_f32(p, 1)
        start, stop = v.split(n_rows(p, 0), ith, nth)
        for r in range(start, stop):
            d, x = row_at(p, 0, r), row_at(p, 1, r)
            for c in range(0, n, v.LANES):
                y = load_n(x + c * size, n - c)
                y = v.select(y < low, low, y)
                store_n(d + c * size, v.select(y > high, high, y), n - c)


for _e in (F32, F16):
    _clamp(_e)


@kernel("ADD_ID", when=both(types_are("f32", "f32", "f32", "i32"), dense_rows))
def add_id_f32(p, ith, nth):
    n, n_used = v.ne(p, 0, 0), v.ne(p, 0, 1)
    start, stop = v.split(n_rows(p, 0), ith, nth)
    for r in range(start, stop):
        slot = v.data(p, 3) + r % n_used * v.nb(p, 3, 0) + r // n_used * v.nb(p, 3, 1)
        d, x = row_at(p, 0, r), row_at(p, 1, r)
        y = v.data(p, 2) + v.ld_i32(slot) * v.nb(p, 2, 1)
        for c in range(0, n, v.LANES):
            z = v.f32_load_n(x + 4 * c, n - c) + v.f32_load_n(y + 4 * c, n - c)
            v.store_n(d + 4 * c, z, n - c)
