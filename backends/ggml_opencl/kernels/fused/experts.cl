// x [n, n_used, T] and weights w [1, n_used, T] -> [n, T]: the weighted sum of a token's experts.
KERNEL weighted_sum(TENSOR(x), TENSOR(w), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint e = 0; e < x_.ne[1]; e++) {
        const float weight = load_f32(AT(w, ((uint4)(0, e, i.y, 0))));
        sum += weight * load_f32(AT(x, ((uint4)(i.x, e, i.y, 0))));
    }
    store_f32(AT(dst, i), sum);
}
