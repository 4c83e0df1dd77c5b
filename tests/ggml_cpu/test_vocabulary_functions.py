"""exp, log, tanh and the like against NumPy's float64, in units of the last place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ggml_cpu import vocabulary as v
from ggml_cpu.kernel import fn, kernel
from tests.support.native import call
from tests.support.vectors import SPECIAL, f32, same


def elementwise(name: str, function):
    """A kernel that applies `function` to rows of any length."""

    @kernel(name=f"test_{name}")
    def apply(p, ith, nth):
        n = v.ne(p, 1, 0)
        for i in range(0, n - n % v.LANES, v.LANES):
            v.store(v.data(p, 0) + 4 * i, function(v.f32_load(v.data(p, 1) + 4 * i)))
        i = n - n % v.LANES
        x = v.f32_load_n(v.data(p, 1) + 4 * i, n - i)
        v.store_n(v.data(p, 0) + 4 * i, function(x), n - i)

    return apply


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the correctly rounded result."""
    right = exact.astype(f32)
    finite = np.isfinite(right)
    same(np.isnan(got), np.isnan(right))
    same(got[np.isinf(right)], right[np.isinf(right)])
    unit = np.spacing(np.abs(right[finite])).astype(np.float64)
    return float(np.max(np.abs(got[finite] - exact[finite]) / unit))


def spread(low: float, high: float) -> np.ndarray:
    """Special values and 100,003 numbers over a range."""
    inside = np.linspace(low, high, 100_003, dtype=f32)
    return np.concatenate([SPECIAL, inside])


def magnitudes() -> np.ndarray:
    """Positive numbers of every exponent, subnormal ones too."""
    bits = np.linspace(1, 0x7F7FFFFF, 100_003).astype(np.uint32)
    return np.concatenate([SPECIAL, bits.view(f32)])


@fn
def exp(x):
    return v.vexp(x)


@fn
def log(x):
    return v.vlog(x)


@fn
def log1p(x):
    return v.vlog1p(x)


@fn
def tanh(x):
    return v.vtanh(x)


@fn
def sigmoid(x):
    return v.vsigmoid(x)


@fn
def silu(x):
    return v.vsilu(x)


@fn
def softplus(x):
    return v.vsoftplus(x)


@fn
def erf(x):
    return v.verf(x)


@fn
def gelu_erf(x):
    return v.vgelu_erf(x)


@fn
def gelu(x):
    return v.vgelu(x)


@fn
def gelu_quick(x):
    return v.vgelu_quick(x)


def exact_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


exact_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS = {
    "exp": (exp, np.exp, spread(-105, 90), 2),
    "log": (log, np.log, magnitudes(), 2),
    "log1p": (log1p, np.log1p, np.concatenate([spread(-1.5, 30), magnitudes()]), 3),
    "tanh": (tanh, np.tanh, spread(-12, 12), 2),
    "erf": (erf, exact_erf, np.concatenate([spread(-5, 5), magnitudes()]), 2),
    "sigmoid": (sigmoid, lambda x: 1 / (1 + np.exp(-x)), spread(-80, 40), 4),
    "silu": (silu, lambda x: x / (1 + np.exp(-x)), spread(-80, 40), 4),
    "softplus": (softplus, lambda x: np.logaddexp(0, x), spread(-80, 40), 5),
}
KERNELS = {name: elementwise(name, row[0]) for name, row in FUNCTIONS.items()}
GELU = {f.__name__: elementwise(f.__name__, f) for f in (gelu, gelu_quick, gelu_erf)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    _, reference, x, bound = FUNCTIONS[name]
    out = np.full_like(x, 99)
    call(KERNELS[name], out, x)
    with np.errstate(all="ignore"):
        assert ulps(out, reference(x.astype(np.float64))) <= bound


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("gelu", exact_gelu),
        ("gelu_quick", lambda x: x / (1 + np.exp(-1.702 * x))),
        ("gelu_erf", lambda x: 0.5 * x * (1 + exact_erf(x / math.sqrt(2)))),
    ],
)
def test_gelu(name, reference):
    x = np.linspace(-12, 12, 50_001, dtype=f32)
    out = np.zeros_like(x)
    call(GELU[name], out, x)
    np.testing.assert_allclose(out, reference(x.astype(np.float64)), rtol=2e-6, atol=2e-7)


@fn
def sine(x):
    return v.vsincos(x)[0]


@fn
def cosine(x):
    return v.vsincos(x)[1]


SINCOS = {"sine": elementwise("sine", sine), "cosine": elementwise("cosine", cosine)}


@pytest.mark.parametrize(("name", "reference"), [("sine", np.sin), ("cosine", np.cos)])
def test_sincos(name, reference):
    near = np.linspace(-20, 20, 50_001, dtype=f32)
    far = np.linspace(-(2.0**27), 2.0**27, 50_001, dtype=f32)
    x = np.concatenate([near, far, f32([0.0, np.inf, -np.inf, np.nan])])
    out = np.zeros_like(x)
    call(SINCOS[name], out, x)
    with np.errstate(invalid="ignore"):
        want = reference(x.astype(np.float64))
    np.testing.assert_allclose(out, want, rtol=0, atol=1e-7)


@kernel()
def libm(p, ith, nth):
    d = v.data(p, 0)
    for i in range(v.ne(p, 1, 0)):
        x = v.ld_f32(v.data(p, 1) + 4 * i)
        v.st_f32(d, v.expf(x))
        v.st_f32(d + 4, v.logf(x))
        v.st_f32(d + 8, v.sinf(x))
        v.st_f32(d + 12, v.cosf(x))
        v.st_f32(d + 16, v.tanhf(x))
        v.st_f32(d + 20, v.erff(x))
        v.st_f32(d + 24, v.expm1f(x))
        v.st_f32(d + 28, v.log1pf(x))
        v.st_f32(d + 32, v.powf(x, v.float32(1.5)))
        v.st_f32(d + 36, v.sqrtf(x))
        v.st_f32(d + 40, v.rintf(x))
        v.st_f32(d + 44, v.floorf(x))
        d += v.nb(p, 0, 1)


def test_libm():
    x = np.array([0.1, 1, 2.5, 7, 30], f32)
    out = np.zeros((5, 12), f32)
    call(libm, out, x)
    y = x.astype(np.float64)
    erf = np.array([math.erf(float(a)) for a in y])
    want = [
        np.exp(y), np.log(y), np.sin(y), np.cos(y), np.tanh(y), erf, np.expm1(y), np.log1p(y),
        y**1.5, np.sqrt(y), np.rint(y), np.floor(y),
    ]  # fmt: skip
    np.testing.assert_allclose(out, np.stack(want, 1), rtol=3e-7)
