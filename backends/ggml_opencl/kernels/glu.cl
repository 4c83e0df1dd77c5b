// A function of one tensor, the gate, times another.

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

static inline float swiglu_clamp_(float g, float v, float limit) {
    g = fmin(g, limit);
    return g * sigmoid(g) * clamp(v, -limit, limit);
}

GATED(reglu, fmax(g, 0.0f) * v)
GATED(geglu, gelu_(g) * v)
GATED(swiglu, g * sigmoid(g) * v)
GATED(geglu_erf, gelu_erf_(g) * v)
GATED(geglu_quick, g * sigmoid(1.702f * g) * v)
GATED(swiglu_oai, swiglu_oai_(g, v, alpha, limit))
GATED(swiglu_clamp, swiglu_clamp_(g, v, limit))

// The gate is a tensor, or one value a row.
KERNEL fused_mul_unary(TENSOR(a), TENSOR(b), TENSOR(dst), const int kind, const float limit) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float g = gate(LOAD(T0, AT(a, repeated(&a_, i))), kind), v = LOAD(T1, AT(b, i));
    const float bound = limit > 0 ? limit : INFINITY;
    STORE(T2, AT(dst, i), fmin(g, bound) * clamp(v, -bound, bound));
}
