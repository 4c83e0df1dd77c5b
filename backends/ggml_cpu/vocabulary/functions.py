"""exp, log, tanh, erf, sincos and derived functions on f32 vectors of any width.

Polynomials and reduced ranges are from the Cephes library (single precision). The polynomials of
erf are minimax fits of the relative error.
"""

from __future__ import annotations

import numpy as np

from .lanes import WORDS, asr, select
from .math import copysign, fma, vabs, vmax, vmin, vround
from .special import scale_by_power_of_two
from .vec import inlined

as_f32, as_i32, to_f32 = (WORDS[w] for w in ("as_f32", "as_i32", "to_f32"))
to_f64, to_i32 = WORDS["to_f64"], WORDS["to_i32"]

LOG2_E = np.float32(1.4426950408889634)
LN2_HIGH = np.float32(0.693359375)  # few significant bits: n * LN2_HIGH is exact
LN2_LOW = np.float32(-2.12194440e-4)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer
EXP_MAX, EXP_MIN = np.float32(89.0), np.float32(-104.0)  # beyond: inf, 0
SQRT_HALF_BITS = 0x3F3504F3
SMALLEST_NORMAL = np.float32(1.1754944e-38)
TWO_23 = np.float32(8388608.0)
HALF_PI, TWO_OVER_PI = np.float64(np.pi / 2), np.float64(2 / np.pi)
INFINITY, NAN = np.float32(np.inf), np.float32(np.nan)


@inlined
def vexp(x):
    """Return e**x within 2 ulp, also if subnormal; NaN -> NaN, -inf -> 0, above 88.7 -> inf."""
    x = vmax(EXP_MIN, vmin(EXP_MAX, x))
    n = (x * LOG2_E + MAGIC) - MAGIC
    r = fma(n, -LN2_HIGH, x)
    r = fma(n, -LN2_LOW, r)
    z = r * r
    p = fma(r, 1.9875691500e-4, 1.3981999507e-3)  # pairs: a shorter chain than Horner's
    p = fma(p, z, fma(r, 8.3334519073e-3, 4.1665795894e-2))
    p = fma(p, z, fma(r, 1.6666665459e-1, 5.0000001201e-1))
    return scale_by_power_of_two(fma(p, z, r) + 1.0, n)


@inlined
def vlog(x):
    """Return ln(x) within 2 ulp; 0 -> -inf, negative and NaN -> NaN, inf -> inf."""
    tiny = x < SMALLEST_NORMAL
    bits = as_i32(select(tiny, x * TWO_23, x))
    exponent = asr(bits - SQRT_HALF_BITS, 23)
    f = as_f32(bits - (exponent << 23)) - 1.0
    e = to_f32(exponent) - select(tiny, 23.0, 0.0)
    p = fma(f, 7.0376836292e-2, -1.1514610310e-1)
    p = fma(p, f, 1.1676998740e-1)
    p = fma(p, f, -1.2420140846e-1)
    p = fma(p, f, 1.4249322787e-1)
    p = fma(p, f, -1.6668057665e-1)
    p = fma(p, f, 2.0000714765e-1)
    p = fma(p, f, -2.4999993993e-1)
    p = fma(p, f, 3.3333331174e-1)
    z = f * f
    y = fma(e, LN2_LOW, p * f * z) - z * 0.5
    y = fma(e, LN2_HIGH, f + y)
    y = select(x < INFINITY, y, x)
    return select(x > 0.0, y, select(x == 0.0, -INFINITY, NAN))


@inlined
def vlog1p(x):
    """Return log(1 + x), accurate near 0; -1 -> -inf, below -1 -> NaN."""
    u = x + 1.0
    correction = (x - (u - 1.0)) / u
    return vlog(u) + select((x > -1.0) & (x < 1e30), correction, 0.0)


@inlined
def vsoftplus(x):
    """Return log(1 + e**x), or x if x > 20, like ggml."""
    return select(x > 20.0, x, vlog1p(vexp(x)))


@inlined
def vsigmoid(x):
    """Return 1 / (1 + e**-x)."""
    return 1.0 / (vexp(-x) + 1.0)


@inlined
def vsilu(x):
    """Return x / (1 + e**-x)."""
    return x / (vexp(-x) + 1.0)


@inlined
def vtanh(x):
    """Return tanh(x) within 2 ulp."""
    z = x * x
    p = fma(z, -5.70498872745e-3, 2.06390887954e-2)
    p = fma(p, z, -5.37397155531e-2)
    p = fma(p, z, 1.33314422036e-1)
    p = fma(p, z, -3.33332819422e-1)
    near = fma(p * z, x, x)
    a = vabs(x)
    far = 1.0 - 2.0 / (vexp(a + a) + 1.0)
    return select(a < 0.625, near, copysign(far, x))


@inlined
def verf(x):
    """Return erf(x) within 2 ulp; NaN -> NaN."""
    z = x * x
    p = fma(z, -6.0904910825e-4, 5.0119924170e-3)
    p = fma(p, z, -2.6778933252e-2)
    p = fma(p, z, 1.1282141689e-1)
    p = fma(p, z, -3.7612523406e-1)
    p = fma(p, z, 1.2837915385e-1)
    near = fma(p, x, x)
    a = vmin(4.0, vabs(x))  # erf(4) rounds to 1
    q = fma(a, 1.9822097071e-4, -3.0655023827e-3)
    q = fma(q, a, 2.2315258142e-2)
    q = fma(q, a, -1.0411376627e-1)
    q = fma(q, a, -6.3697598983e-1)
    q = fma(q, a, -1.1277972946)
    q = fma(q, a, -1.6643581008e-4)
    return select(a < 0.9, near, copysign(1.0 - vexp(q), x))


@inlined
def vgelu_erf(x):
    """Return the exact GELU, computed with erf (ggml's GELU_ERF)."""
    return x * 0.5 * (verf(x * 0.7071067811865476) + 1.0)


@inlined
def vgelu(x):
    """Return the tanh approximation of GELU (ggml's GELU)."""
    inner = x * 0.7978845608028654 * fma(x * x, 0.044715, 1.0)
    return x * 0.5 * (vtanh(inner) + 1.0)


@inlined
def vgelu_quick(x):
    """Return x * sigmoid(1.702 x) (ggml's GELU_QUICK)."""
    return x / (vexp(x * -1.702) + 1.0)


@inlined
def vsincos(x):
    """Return (sin x, cos x) within 1e-7 for |x| < 2**27, reduced in float64; inf, NaN -> NaN."""
    wide = to_f64(x)
    n = vround(wide * TWO_OVER_PI)
    r = to_f32(fma(n, -HALF_PI, wide))
    quadrant = to_i32(n)
    z = r * r
    s = fma(z, -1.9515295891e-4, 8.3321608736e-3)
    s = fma(s, z, -1.6666654611e-1)
    s = fma(s * z, r, r)
    c = fma(z, 2.443315711809948e-5, -1.388731625493765e-3)
    c = fma(c, z, 4.166664568298827e-2)
    c = fma(c, z, -0.5)
    c = fma(c, z, 1.0)
    crossed = (quadrant & 1) != 0
    sine, cosine = as_i32(select(crossed, c, s)), as_i32(select(crossed, s, c))
    sine = as_f32(sine ^ ((quadrant & 2) << 30))
    return sine, as_f32(cosine ^ (((quadrant + 1) & 2) << 30))
