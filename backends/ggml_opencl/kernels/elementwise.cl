// Arithmetic with broadcast, unary functions, gated linear units.

#define BINARY(name, expression) \
    KERNEL name(TENSOR(a), TENSOR(b), TENSOR(dst)) { \
        if (get_global_id(0) >= count(&dst_)) return; \
        const uint4 i = unflatten(&dst_, get_global_id(0)); \
        const float x = LOAD(T0, AT(a, i)), y = LOAD(T1, AT(b, repeated(&b_, i))); \
        STORE(T2, AT(dst, i), expression); \
    }

#if defined(BINARIES)
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x * y)
BINARY(div, x / y)

// a[:, e, t] + b[:, ids[e, t]]
KERNEL add_id(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint row = load_i32(AT(ids, ((uint4)(i.y, i.z, 0, 0))));
    const float bias = LOAD(T1, AT(b, ((uint4)(i.x, row, 0, 0))));
    STORE(T2, AT(dst, i), LOAD(T0, AT(a, i)) + bias);
}
#endif

static inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
static inline float gelu_(float x) {
    return 0.5f * x * (1.0f + tanh(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}
static inline float gelu_erf_(float x) { return 0.5f * x * (1.0f + erf(0.70710678118654752440f * x)); }

#if defined(UNARIES)
#define UNARY(name, expression) \
    KERNEL name(TENSOR(a), TENSOR(dst), const float p, const float q) { \
        if (get_global_id(0) >= count(&dst_)) return; \
        const uint4 i = unflatten(&dst_, get_global_id(0)); \
        const float x = LOAD(T0, AT(a, i)); \
        STORE(T1, AT(dst, i), expression); \
    }

UNARY(op_scale, x * p + q)
UNARY(op_clamp, fmin(fmax(x, p), q))
UNARY(op_sqr, x * x)
UNARY(op_sqrt, sqrt(x))
UNARY(op_log, log(x))
UNARY(op_sin, sin(x))
UNARY(op_cos, cos(x))
UNARY(op_abs, fabs(x))
UNARY(op_sgn, (float)((x > 0) - (x < 0)))
UNARY(op_neg, -x)
UNARY(op_step, (float)(x > 0))
UNARY(op_tanh, tanh(x))
UNARY(op_elu, x > 0 ? x : expm1(x))
UNARY(op_relu, fmax(x, 0.0f))
UNARY(op_sigmoid, sigmoid(x))
UNARY(op_gelu, gelu_(x))
UNARY(op_gelu_quick, x * sigmoid(1.702f * x))
UNARY(op_gelu_erf, gelu_erf_(x))
UNARY(op_silu, x * sigmoid(x))
UNARY(op_hardswish, x * clamp((x + 3.0f) / 6.0f, 0.0f, 1.0f))
UNARY(op_hardsigmoid, clamp((x + 3.0f) / 6.0f, 0.0f, 1.0f))
UNARY(op_exp, exp(x))
UNARY(op_expm1, expm1(x))
UNARY(op_softplus, x > 20.0f ? x : log1p(exp(x)))
UNARY(op_floor, floor(x))
UNARY(op_ceil, ceil(x))
UNARY(op_round, round(x))
UNARY(op_trunc, trunc(x))
#endif

#if defined(GATES)
// a gates b; if both are one tensor, they are parts of its rows that begin at a0 and b0.
#define GATED(name, expression) \
    KERNEL name(TENSOR(a), TENSOR(b), TENSOR(dst), const int a0, const int b0, const float alpha, \
                const float limit) { \
        if (get_global_id(0) >= count(&dst_)) return; \
        const uint4 i = unflatten(&dst_, get_global_id(0)); \
        const float g = LOAD(T0, AT(a, i + (uint4)(a0, 0, 0, 0))); \
        const float v = LOAD(T1, AT(b, i + (uint4)(b0, 0, 0, 0))); \
        STORE(T2, AT(dst, i), expression); \
    }

static inline float swiglu_oai_(float g, float v, float alpha, float limit) {
    g = fmin(g, limit);
    return g * sigmoid(alpha * g) * (clamp(v, -limit, limit) + 1.0f);
}

GATED(reglu, fmax(g, 0.0f) * v)
GATED(geglu, gelu_(g) * v)
GATED(swiglu, g * sigmoid(g) * v)
GATED(geglu_erf, gelu_erf_(g) * v)
GATED(geglu_quick, g * sigmoid(1.702f * g) * v)
GATED(swiglu_oai, swiglu_oai_(g, v, alpha, limit))
#endif
