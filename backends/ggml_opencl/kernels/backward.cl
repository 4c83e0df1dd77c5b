// Gradients. By rows: one group a row.

#if defined(ELEMENTS)
KERNEL silu_back(TENSOR(grad), TENSOR(x), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float v = load_f32(AT(x, i)), s = 1.0f / (1.0f + exp(-v));
    store_f32(AT(dst, i), load_f32(AT(grad, i)) * s * (1.0f + v * (1.0f - s)));
}

// grad [n, r], ids [r] -> [n, m]; an item sums the rows that were taken from one.
KERNEL get_rows_back(TENSOR(grad), TENSOR(ids), TENSOR(dst), CHECKED) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint r = 0; r < grad_.ne[1]; r++) {
        const int row = load_i32(AT(ids, ((uint4)(r, 0, 0, 0))));
        if (!IN_RANGE(row, dst_.ne[1]) || row != i.y) continue;
        sum += LOAD(T0, AT(grad, ((uint4)(i.x, r, 0, 0))));
    }
    store_f32(AT(dst, i), sum);
}
#endif

#if defined(TILES)
KERNEL repeat_back(TENSOR(grad), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint w = i.w; w < grad_.ne[3]; w += dst_.ne[3]) {
        for (uint z = i.z; z < grad_.ne[2]; z += dst_.ne[2]) {
            for (uint y = i.y; y < grad_.ne[1]; y += dst_.ne[1]) {
                for (uint x = i.x; x < grad_.ne[0]; x += dst_.ne[0]) {
                    sum += LOAD(T0, AT(grad, ((uint4)(x, y, z, w))));
                }
            }
        }
    }
    STORE(T1, AT(dst, i), sum);
}
#endif

#if defined(ROWS)
KERNEL rms_norm_back(TENSOR(grad), TENSOR(x), TENSOR(dst), const float eps) {
    local float2 shared[WG];
    const uint4 row = row_of(&dst_, get_group_id(0));
    const uint n = dst_.ne[0];
    const global uchar *g = AT(grad, row), *v = AT(x, row);
    global uchar *y = AT(dst, row);
    float2 squares = 0, both = 0;
    EACH(j, n) {
        const float value = load_f32(v + j * x_.nb[0]);
        squares = plus(squares, value * value);
        both = plus(both, value * load_f32(g + j * grad_.nb[0]));
    }
    const float mean = group_sum(squares, shared) / n + eps;
    const float part = group_sum(both, shared) / n / mean, scale = 1.0f / sqrt(mean);
    EACH(j, n) {
        const float value = load_f32(v + j * x_.nb[0]);
        store_f32(y + j * dst_.nb[0], scale * (load_f32(g + j * grad_.nb[0]) - part * value));
    }
}

KERNEL soft_max_back(TENSOR(grad), TENSOR(y), TENSOR(dst), const float scale) {
    local float2 shared[WG];
    const uint4 row = row_of(&dst_, get_group_id(0));
    const uint n = dst_.ne[0];
    const global uchar *g = AT(grad, row), *p = AT(y, row);
    global uchar *out = AT(dst, row);
    float2 sum = 0;
    EACH(j, n) sum = plus(sum, load_f32(g + j * grad_.nb[0]) * load_f32(p + j * y_.nb[0]));
    const float mean = group_sum(sum, shared);
    EACH(j, n) {
        const float slope = load_f32(g + j * grad_.nb[0]) - mean;
        store_f32(out + j * dst_.nb[0], scale * load_f32(p + j * y_.nb[0]) * slope);
    }
}
#endif
