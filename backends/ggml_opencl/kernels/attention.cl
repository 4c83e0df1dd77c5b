// Softmax of scores, attention without a score matrix, scores of keys. ALiBi slopes as in arXiv 2108.12409.

// The slope of a head; `power` is the largest power of two among the numbers of heads.
static inline float slope_of(uint head, float max_bias, int power) {
    if (max_bias <= 0) return 1.0f;
    const uint halves = head < power ? 2 * (head + 1) : 2 * (head - power) + 1;
    return exp2(-max_bias / 2 / power * halves);
}

#if defined(SOFT_MAX)
// One group a row; a may be dst.
KERNEL soft_max(TENSOR(a), TENSOR(mask), TENSOR(sinks), TENSOR(dst), const float scale,
                const float max_bias, const int power) {
    local float shared[WG];
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
    float sum = 0;
#if SINKS
    const float sink = load_f32(AT(sinks, ((uint4)(row.z, 0, 0, 0))));
    top = fmax(top, sink);
#endif
    EACH(j, a_.ne[0]) {
        const float e = exp(load_f32(y + 4 * j) - top);
        store_f32(y + 4 * j, e);
        sum += e;
    }
    sum = group_sum(sum, shared);
#if SINKS
    sum += exp(sink - top);
#endif
    EACH(j, a_.ne[0]) store_f32(y + 4 * j, load_f32(y + 4 * j) / sum);
}
#endif

#if defined(FLASH)
#define OWN ((DV + WG - 1) / WG) // values of the result that one item makes

// Group (token, head, sequence). WG cells at a time: each item scores one, then all add them up.
KERNEL flash_attn_ext(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(mask), TENSOR(sinks), TENSOR(dst),
                      const float scale, const float max_bias, const float softcap,
                      const int power) {
    local float shared[WG], p[WG], query[DK];
    const uint item = get_local_id(0), token = get_group_id(0), head = get_group_id(1);
    const uint seq = get_group_id(2), kv_head = head / (q_.ne[2] / k_.ne[2]);
    const float slope = slope_of(head, max_bias, power);
    float own[OWN], top = -INFINITY, sum = 0;
    for (uint i = 0; i < OWN; i++) own[i] = 0;
    EACH(d, DK) query[d] = scale * LOAD(T0, AT(q, ((uint4)(d, token, head, seq))));
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint start = 0; start < k_.ne[1]; start += WG) {
        const uint j = start + item, n = min((uint)WG, k_.ne[1] - start);
        float score = -INFINITY, bias = 0;
#if MASK
        const uint4 m = (uint4)(j, token, head % mask_.ne[2], seq % mask_.ne[3]);
        if (item < n) bias = slope * load_f16(AT(mask, m));
#endif
        if (item < n && bias > -INFINITY) {
            const global uchar *key = AT(k, ((uint4)(0, j, kv_head, seq)));
            score = 0;
            for (uint d = 0; d < DK; d++) score += query[d] * ELEMENT(T1, key, d);
            if (softcap > 0) score = softcap * tanh(score / softcap);
            score += bias;
        }
        const float higher = fmax(top, group_max(score, shared));
        const float base = higher == -INFINITY ? 0.0f : higher; // nothing seen so far: all is zero
        p[item] = exp(score - base);
        const float shrink = exp(top - base);
        sum = sum * shrink + group_sum(p[item], shared);
        top = higher;
        for (uint i = 0, d = item; d < DV; i++, d += WG) {
            float x = own[i] * shrink;
            for (uint c = 0; c < n; c++) {
                if (p[c] == 0) continue;
                x += p[c] * ELEMENT(T2, AT(v, ((uint4)(0, start + c, kv_head, seq))), d);
            }
            own[i] = x;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    float shrink = 1;
#if SINKS
    const float sink = load_f32(AT(sinks, ((uint4)(head, 0, 0, 0))));
    const float higher = fmax(top, sink);
    shrink = exp(top - higher);
    sum = sum * shrink + exp(sink - higher);
#endif
    for (uint i = 0, d = item; d < DV; i++, d += WG) {
        store_f32(AT(dst, ((uint4)(d, head, token, seq))), sum == 0 ? 0.0f : own[i] * shrink / sum);
    }
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
