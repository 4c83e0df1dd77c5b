// Hyper-connections: several residual streams.

#if defined(READ)
// x [n, streams, T], weights [streams, T] -> [n, T]
KERNEL dsv4_hc_pre(TENSOR(x), TENSOR(weights), TENSOR(dst), const float scale) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint s = 0; s < x_.ne[1]; s++) {
        const float w = load_f32(AT(weights, ((uint4)(s, i.y, 0, 0))));
        sum += w * load_f32(AT(x, ((uint4)(i.x, s, i.y, 0))));
    }
    store_f32(AT(dst, i), scale * sum);
}

// x, gates [n, streams, T] -> [n, T]
KERNEL dsv4_hc_pre_gated(TENSOR(x), TENSOR(gates), TENSOR(dst), const float scale) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint s = 0; s < x_.ne[1]; s++) {
        const uint4 at_s = (uint4)(i.x, s, i.y, 0);
        sum += load_f32(AT(x, at_s)) / (1.0f + exp(-load_f32(AT(gates, at_s))));
    }
    store_f32(AT(dst, i), scale * sum);
}
#endif

#if defined(MATRIX)
#define N 4 // streams

static inline float line(const float *x, uint step) {
    return x[0] + x[step] + x[2 * step] + x[3 * step];
}

// mixes [24, T] -> [N (to), N (from), T]. An item brings one token's matrix to sums of one.
KERNEL dsv4_hc_comb(TENSOR(mixes), TENSOR(scale), TENSOR(base), TENSOR(dst), const float eps,
                    const int n_iter) {
    const uint t = get_global_id(0);
    if (t >= dst_.ne[2]) return;
    const float by = load_f32(AT(scale, ((uint4)(2, 0, 0, 0))));
    float x[N * N];
    for (uint j = 0; j < N * N; j++) {
        const float mix = load_f32(AT(mixes, ((uint4)(2 * N + j, t, 0, 0))));
        x[j] = mix * by + load_f32(AT(base, ((uint4)(2 * N + j, 0, 0, 0))));
    }
    for (uint from = 0; from < N; from++) {
        float *row = x + N * from;
        const float top = fmax(fmax(row[0], row[1]), fmax(row[2], row[3]));
        for (uint to = 0; to < N; to++) row[to] = exp(row[to] - top);
        const float sum = line(row, 1);
        for (uint to = 0; to < N; to++) row[to] = row[to] / sum + eps;
    }
    for (int step = 0; step < n_iter; step++) {
        for (uint from = 0; step > 0 && from < N; from++) {
            const float sum = line(x + N * from, 1) + eps;
            for (uint to = 0; to < N; to++) x[N * from + to] /= sum;
        }
        for (uint to = 0; to < N; to++) {
            const float sum = line(x + to, N) + eps;
            for (uint from = 0; from < N; from++) x[N * from + to] /= sum;
        }
    }
    for (uint j = 0; j < N * N; j++) store_f32(AT(dst, ((uint4)(j % N, j / N, t, 0))), x[j]);
}
#endif

#if defined(STREAMS)
// x [n, T], residual [n, streams, T], post [streams, T], comb [streams, streams, T] if MIXED
KERNEL dsv4_hc_post(TENSOR(x), TENSOR(residual), TENSOR(post), TENSOR(comb), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = load_f32(AT(x, ((uint4)(i.x, i.z, 0, 0))));
    sum *= load_f32(AT(post, ((uint4)(i.y, i.z, 0, 0))));
#if MIXED
    for (uint j = 0; j < residual_.ne[1]; j++) {
        const float part = load_f32(AT(comb, ((uint4)(i.y, j, i.z, 0))));
        sum += part * load_f32(AT(residual, ((uint4)(i.x, j, i.z, 0))));
    }
#else
    sum += load_f32(AT(residual, i));
#endif
    store_f32(AT(dst, i), sum);
}
#endif
