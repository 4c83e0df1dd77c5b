"""Ops on single elements: arithmetic with broadcast, unary functions, gated linear units."""

from __future__ import annotations

from collections.abc import Callable

from ggml_py.ops.registry import node, op, require, view_of
from ggml_py.tensor import Tensor
from ggml_py.types import I32


def _binary(name: str, a: Tensor, b: Tensor, inplace: bool) -> Tensor:
    require(b.can_repeat_to(a), f"{name.lower()}: b must repeat to a's shape", a, b)
    return view_of(name, a, a, b) if inplace else node(name, a.type, a.ne, a, b)


@op("ADD", inplace=True)
def add(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a + b, b repeated to a's shape (ggml.c:ggml_add)."""
    return _binary("ADD", a, b, inplace)


@op("SUB", inplace=True)
def sub(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a - b, b repeated to a's shape (ggml.c:ggml_sub)."""
    return _binary("SUB", a, b, inplace)


@op("MUL", inplace=True)
def mul(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a * b, b repeated to a's shape (ggml.c:ggml_mul)."""
    return _binary("MUL", a, b, inplace)


@op("DIV", inplace=True)
def div(a: Tensor, b: Tensor, inplace: bool = False) -> Tensor:
    """a / b, b repeated to a's shape (ggml.c:ggml_div)."""
    return _binary("DIV", a, b, inplace)


@op("ADD_ID", inplace=True)
def add_id(a: Tensor, b: Tensor, ids: Tensor) -> Tensor:
    """a[:, e, t] + b[:, ids[e, t]] (ggml.c:ggml_add_id). a [n, n_used, T], b [n, n_expert], ids I32
    [n_used, T]
    """
    require(a.ne[0] == b.ne[0], "add_id: a and b must have rows of equal length", a, b)
    require(a.ne[1:3] == ids.ne[:2], "add_id: ids must be [a.ne1, a.ne2]", a, ids)
    require(ids.type is I32, "add_id: ids must be i32", ids)
    return node("ADD_ID", a.type, a.ne, a, b, ids)


@op("SCALE", "scale:f bias:f", inplace=True)
def scale(a: Tensor, s: float, bias: float = 0.0, inplace: bool = False) -> Tensor:
    """s * a + bias (ggml.c:ggml_scale_bias)."""
    require(a.contiguous_from(1), "scale: rows must be dense", a)
    if inplace:
        return view_of("SCALE", a, a, params=(s, bias))
    return node("SCALE", a.type, a.ne, a, params=(s, bias))


@op("CLAMP", "min:f max:f", inplace=True)
def clamp(a: Tensor, min: float, max: float) -> Tensor:
    """a limited to [min, max] (ggml.c:ggml_clamp)."""
    return node("CLAMP", a.type, a.ne, a, params=(min, max))


def _function(name: str, doc: str) -> Callable[[Tensor], Tensor]:
    def build(a: Tensor) -> Tensor:
        return node(name, a.type, a.ne, a)

    build.__name__, build.__doc__ = name.lower(), doc
    return op(name, inplace=True)(build)


sqr = _function("SQR", "a squared (ggml.c:ggml_sqr).")
sqrt = _function("SQRT", "Square root (ggml.c:ggml_sqrt).")
log = _function("LOG", "Natural logarithm (ggml.c:ggml_log).")
sin = _function("SIN", "Sine (ggml.c:ggml_sin).")
cos = _function("COS", "Cosine (ggml.c:ggml_cos).")


def _unary(name: str, kind: int, doc: str) -> Callable[[Tensor], Tensor]:
    """`kind` is ggml's number of the function (ggml.h:enum ggml_unary_op), kept in the first
    parameter word.
    """

    def build(a: Tensor) -> Tensor:
        require(a.has_contiguous_rows(), f"{name.lower()}: rows must be dense", a)
        return node(name, a.type, a.ne, a, params=(kind,))

    build.__name__, build.__doc__ = name.lower(), doc
    return op(name, "kind:i", inplace=True)(build)


abs = _unary("ABS", 0, "|a|")
sgn = _unary("SGN", 1, "-1, 0 or 1")
neg = _unary("NEG", 2, "-a")
step = _unary("STEP", 3, "1 where a > 0, else 0")
tanh = _unary("TANH", 4, "Hyperbolic tangent")
elu = _unary("ELU", 5, "a where a > 0, else exp(a) - 1")
relu = _unary("RELU", 6, "max(a, 0)")
sigmoid = _unary("SIGMOID", 7, "1 / (1 + exp(-a))")
gelu = _unary("GELU", 8, "Gaussian error linear unit, tanh form")
gelu_quick = _unary("GELU_QUICK", 9, "a * sigmoid(1.702 a)")
silu = _unary("SILU", 10, "a * sigmoid(a)")
hardswish = _unary("HARDSWISH", 11, "a * clamp((a + 3) / 6, 0, 1)")
hardsigmoid = _unary("HARDSIGMOID", 12, "clamp((a + 3) / 6, 0, 1)")
exp = _unary("EXP", 13, "e to the a")
expm1 = _unary("EXPM1", 14, "e to the a, minus 1")
softplus = _unary("SOFTPLUS", 15, "log(1 + exp(a)); a itself above 20")
gelu_erf = _unary("GELU_ERF", 16, "Gaussian error linear unit, erf form")
floor = _unary("FLOOR", 18, "Largest integer not above a")
ceil = _unary("CEIL", 19, "Smallest integer not below a")
round = _unary("ROUND", 20, "Nearest integer, halves away from zero")
trunc = _unary("TRUNC", 21, "Integer part")


def glu(name: str, kind: int, a: Tensor, b: Tensor | None, swapped: bool, *more: float) -> Tensor:
    """A gated linear unit: gate a and value b, or the halves of a's rows (ggml.c:ggml_glu).

    The last element of rows of odd length has no part in it.
    """
    low = name.lower()
    require(a.contiguous_from(1), f"{low}: rows must be dense", a)
    ne = a.ne
    if b is None:
        ne = (a.ne[0] // 2, *a.ne[1:])
    else:
        require(a.same_shape(b) and a.type is b.type, f"{low}: a and b must be alike", a, b)
        require(b.contiguous_from(1), f"{low}: rows must be dense", b)
    return node(name, a.type, ne, a, b, params=(kind, int(swapped), *more))


def _gated(
    name: str, kind: int, doc: str
) -> tuple[Callable[..., Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """The one-tensor form (gate and value are the halves of each row) and the two-tensor form."""

    def halves(a: Tensor, swapped: bool = False) -> Tensor:
        return glu(name, kind, a, None, swapped)

    def split(a: Tensor, b: Tensor) -> Tensor:
        return glu(name, kind, a, b, False)

    halves.__name__, halves.__doc__ = name.lower(), f"{doc} [2n, ...] -> [n, ...]"
    split.__name__, split.__doc__ = f"{name.lower()}_split", f"{doc} a gate, b value, both [n, ...]"
    return op(name, "kind:i swapped:i")(halves), split


reglu, reglu_split = _gated("REGLU", 0, "relu(gate) * value.")
geglu, geglu_split = _gated("GEGLU", 1, "gelu(gate) * value.")
swiglu, swiglu_split = _gated("SWIGLU", 2, "silu(gate) * value.")
geglu_erf, geglu_erf_split = _gated("GEGLU_ERF", 4, "gelu_erf(gate) * value.")
geglu_quick, geglu_quick_split = _gated("GEGLU_QUICK", 5, "gelu_quick(gate) * value.")


@op("SWIGLU_OAI", "kind:i swapped:i alpha:f limit:f")
def swiglu_oai(a: Tensor, b: Tensor, alpha: float, limit: float) -> Tensor:
    """g * sigmoid(alpha g) * (u + 1) with g = min(a, limit), u = clamp(b, -limit, limit)
    (ggml.c:ggml_swiglu_oai).
    """
    return glu("SWIGLU_OAI", 3, a, b, False, alpha, limit)
