// Functions of single elements.

PART(_unary)

#define OF_ELEMENTS(name, expression) \
    KERNEL op_##name(TENSOR(a), TENSOR(dst), const float p, const float q) { \
        if (get_global_id(0) >= count(&dst_)) return; \
        const uint4 i = unflatten(&dst_, get_global_id(0)); \
        STORE(T1, AT(dst, i), f_##name(LOAD(T0, AT(a, i)), p, q)); \
    }

UNARY_FUNCTIONS(OF_ELEMENTS)

KERNEL xielu(TENSOR(a), TENSOR(dst), const float alpha_n, const float alpha_p, const float beta,
             const float eps) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float x = LOAD(T0, AT(a, i));
    const float bent = x > 0 ? alpha_p * x * x : alpha_n * (expm1(fmin(x, eps)) - x);
    STORE(T1, AT(dst, i), bent + beta * x);
}
