"""Unary ops: functions of single elements."""

from __future__ import annotations

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import Function, fn, kernel
from ggml_cpu.kernels._common import FLOATS, Element, dense_rows, require_all, types_are
from ggml_cpu.kernels._map import map_rows, no_params


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
    """Return e**x - 1; for |x| < 0.5 as tanh(x/2) * (e**x + 1), which avoids cancellation."""
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
    """Return the sine, one lane at a time with libm."""
    y = x
    for i in range(v.LANES):
        y = v.set_lane(y, i, v.sinf(v.lane(x, i)))
    return y


@fn
def cos(x):
    """Return the cosine, one lane at a time with libm."""
    y = x
    for i in range(v.LANES):
        y = v.set_lane(y, i, v.cosf(v.lane(x, i)))
    return y


@fn
def leaky_relu(x, slope):
    return v.select(x > 0.0, x, x * slope)


@fn
def xielu(x, alpha_n, alpha_p, beta, eps):
    positive = x * x * alpha_p
    negative = (expm1(v.vmin(x, eps)) - x) * alpha_n
    return v.select(x > 0.0, positive, negative) + x * beta


@fn
def first_param(p):
    return (v.op_f32(p, 0),)


@fn
def xielu_params(p):
    return v.op_f32(p, 1), v.op_f32(p, 2), v.op_f32(p, 3), v.op_f32(p, 4)


def _unary(op: str, apply: Function, element: Element, params: Function = no_params) -> None:
    """Declare dst = apply(src0) for one float type."""
    name, types = f"{op.lower()}_{element.name}", types_are(element.name, element.name)

    declare = kernel(op, when=require_all(types, dense_rows), name=name, made=True)
    declare(lambda: map_rows(apply, element, params))


for _e in FLOATS:
    for _op, _apply in (
        ("ABS", absolute),
        ("SGN", sgn),
        ("NEG", neg),
        ("STEP", step),
        ("TANH", tanh),
        ("ELU", elu),
        ("RELU", relu),
        ("SIGMOID", sigmoid),
        ("GELU", gelu),
        ("GELU_QUICK", gelu_quick),
        ("SILU", silu),
        ("HARDSWISH", hardswish),
        ("HARDSIGMOID", hardsigmoid),
        ("EXP", exp),
        ("EXPM1", expm1),
        ("SOFTPLUS", softplus),
        ("GELU_ERF", gelu_erf),
        ("FLOOR", floor),
        ("CEIL", ceil),
        ("ROUND", round_half_away),
        ("TRUNC", trunc),
        ("SQR", sqr),
        ("SQRT", sqrt),
        ("LOG", log),
        ("SIN", sin),
        ("COS", cos),
    ):
        _unary(_op, _apply, _e)
    _unary("LEAKY_RELU", leaky_relu, _e, first_param)
    _unary("XIELU", xielu, _e, xielu_params)
