// Activations with parameters.

#if defined(UNARIES)
KERNEL leaky_relu(TENSOR(a), TENSOR(dst), const float slope) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float x = LOAD(T0, AT(a, i));
    STORE(T1, AT(dst, i), x > 0 ? x : slope * x);
}

KERNEL xielu(TENSOR(a), TENSOR(dst), const float alpha_n, const float alpha_p, const float beta,
             const float eps) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float x = LOAD(T0, AT(a, i));
    const float bent = x > 0 ? alpha_p * x * x : alpha_n * (expm1(fmin(x, eps)) - x);
    STORE(T1, AT(dst, i), bent + beta * x);
}
#endif

#if defined(GATES)
KERNEL swiglu_clamp(TENSOR(a), TENSOR(b), TENSOR(dst), const float limit) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float g = fmin(LOAD(T0, AT(a, i)), limit);
    const float v = clamp(LOAD(T1, AT(b, i)), -limit, limit);
    STORE(T2, AT(dst, i), g / (1.0f + exp(-g)) * v);
}
#endif
