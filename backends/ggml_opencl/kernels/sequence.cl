// Numbers made from a rule.

#if defined(RANGES)
KERNEL arange(TENSOR(dst), const float start, const float step) {
    if (get_global_id(0) >= count(&dst_)) return;
    STORE(T0, AT(dst, unflatten(&dst_, get_global_id(0))), fma(step, get_global_id(0), start));
}
#endif

#if defined(EMBEDDINGS)
// a [n] -> [dim, n]: cosines, then sines, of a times falling frequencies; `rate` is the logarithm
// of one frequency over the next.
KERNEL timestep_embedding(TENSOR(a), TENSOR(dst), const float rate) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint n = dst_.ne[0] / 2;
    const float time = LOAD(T0, AT(a, ((uint4)(i.y, 0, 0, 0))));
    const float angle = time * exp(-rate * (i.x % max(n, 1u)));
    STORE(T1, AT(dst, i), i.x < n ? cos(angle) : i.x < 2 * n ? sin(angle) : 0.0f);
}
#endif
