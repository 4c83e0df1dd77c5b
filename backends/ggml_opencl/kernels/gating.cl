// A unary function of a tensor, or of one value a row, times another tensor.

#define RELU 6
#define SIGMOID 7
#define GELU 8

static inline float gate(float x, int kind) {
    if (kind == RELU) return fmax(x, 0.0f);
    if (kind == GELU) {
        return 0.5f * x * (1.0f + tanh(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
    }
    return (kind == SIGMOID ? 1.0f : x) / (1.0f + exp(-x));
}

KERNEL fused_mul_unary(TENSOR(a), TENSOR(b), TENSOR(dst), const int kind, const float limit) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float g = gate(LOAD(T0, AT(a, repeated(&a_, i))), kind), v = LOAD(T1, AT(b, i));
    const float bound = limit > 0 ? limit : INFINITY;
    STORE(T2, AT(dst, i), fmin(g, bound) * clamp(v, -bound, bound));
}
