// Softmax of scores, scores of keys.

#if defined(SOFT_MAX)
// One group a row; a may be dst.
KERNEL soft_max(TENSOR(a), TENSOR(mask), TENSOR(sinks), TENSOR(dst), const float scale,
                const float max_bias, const int power) {
    local float2 shared[WG];
    const uint4 row = row_of(&a_, get_group_id(0));
    const float slope = slope_of(row.z, max_bias, power);
    const global uchar *x = AT(a, row);
    global uchar *y = AT(dst, row);
    float top = -INFINITY;
    EACH(j, a_.ne[0]) {
        float v = scale * load_f32(x + 4 * j);
#if MASK
        const uint4 i = (uint4)(j, row.y, row.z % mask_.ne[2], row.w % mask_.ne[3]);
        v += slope * LOAD(T1, AT(mask, i));
#endif
        store_f32(y + 4 * j, v);
        top = fmax(top, v);
    }
    top = group_max(top, shared);
    float2 sums = 0;
#if SINKS
    const float sink = load_f32(AT(sinks, ((uint4)(row.z, 0, 0, 0))));
    top = fmax(top, sink);
#endif
    EACH(j, a_.ne[0]) {
        const float e = exp(load_f32(y + 4 * j) - top);
        store_f32(y + 4 * j, e);
        sums = plus(sums, e);
    }
    float sum = group_sum(sums, shared);
#if SINKS
    sum += exp(sink - top);
#endif
    EACH(j, a_.ne[0]) store_f32(y + 4 * j, load_f32(y + 4 * j) / sum);
}
#endif

#if defined(INDEXER)
// An item has one key, of D values, and one token.
// q [D, H, T, B], k [D, 1, n, B], weights [H, T, 1, B], mask [n, T, 1, ..] -> [n, T, 1, B]
KERNEL lightning_indexer(TENSOR(q), TENSOR(k), TENSOR(weights), TENSOR(mask), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float key[(D + 31) / 32 * 32];
    for (uint g = 0; 32 * g < D; g++) {
        GROUP(T1, AT(k, ((uint4)(0, 0, i.x, i.w))), g, D, key + 32 * g);
    }
    float score = LOAD(T3, AT(mask, repeated(&mask_, i)));
    for (uint h = 0; h < q_.ne[1]; h++) {
        const global uchar *row = AT(q, ((uint4)(0, h, i.y, i.w)));
        float sum = 0;
        for (uint j = 0; j < D; j++) sum += key[j] * load_f32(row + j * q_.nb[0]);
        score += load_f32(AT(weights, ((uint4)(h, i.y, 0, i.w)))) * fmax(sum, 0.0f);
    }
    store_f32(AT(dst, i), score);
}
#endif
