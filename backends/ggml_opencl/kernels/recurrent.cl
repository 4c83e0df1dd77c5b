// State-space and delta-net recurrences.

#define EACH(j, n) for (uint j = get_local_id(0); j < (n); j += WG)

#if defined(CONVOLUTION)
// sx [d_conv - 1 + T, C, B], c [d_conv, C] -> [C, T, B]
KERNEL ssm_conv(TENSOR(sx), TENSOR(c), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint j = 0; j < c_.ne[0]; j++) {
        const float w = load_f32(AT(c, ((uint4)(j, i.x, 0, 0))));
        sum += w * load_f32(AT(sx, ((uint4)(i.y + j, i.x, i.z, 0))));
    }
    store_f32(AT(dst, i), sum);
}
#endif

#if defined(SCAN)
// Group (channels, head, sequence); an item keeps the N states of one channel.
KERNEL ssm_scan(TENSOR(s), TENSOR(x), TENSOR(dt), TENSOR(a), TENSOR(b), TENSOR(c), TENSOR(ids),
                TENSOR(dst), const int n_snapshots) {
    const uint d = get_global_id(0), head = get_group_id(1), seq = get_group_id(2);
    const uint dim = x_.ne[0], n_head = x_.ne[1], n_tokens = x_.ne[2];
    if (d >= dim) return;
    const uint group = head / (n_head / b_.ne[1]);
    const uint cell = load_i32(AT(ids, ((uint4)(seq, 0, 0, 0))));
    float state[N];
    for (uint n = 0; n < N; n++) state[n] = load_f32(AT(s, ((uint4)(n, d, head, cell))));
    global float *y = (global float *)(dst + dst_.offset);
    global float *saved = y + count(&x_) + N * (d + dim * (head + n_head * seq));
    for (uint t = 0; t < n_tokens; t++) {
        const float raw = load_f32(AT(dt, ((uint4)(head, t, seq, 0))));
        const float step = raw > 20.0f ? raw : log1p(exp(raw));
        const float inflow = step * load_f32(AT(x, ((uint4)(d, head, t, seq))));
        float sum = 0;
        for (uint n = 0; n < N; n++) {
            const float decay = exp(step * load_f32(AT(a, ((uint4)(n % a_.ne[0], head, 0, 0)))));
            state[n] = state[n] * decay + inflow * load_f32(AT(b, ((uint4)(n, group, t, seq))));
            sum += state[n] * load_f32(AT(c, ((uint4)(n, group, t, seq))));
        }
        y[d + dim * (head + n_head * (t + n_tokens * seq))] = sum;
        const uint slot = n_tokens - 1 - t;
        if (slot >= n_snapshots) continue;
        for (uint n = 0; n < N; n++) saved[slot * N * dim * n_head * x_.ne[3] + n] = state[n];
    }
}
#endif

#if defined(DELTA_NET)
// Group (value channels, head, sequence); an item keeps one row [S] of the state. GATES is 1 or S.
KERNEL gated_delta_net(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(g), TENSOR(beta), TENSOR(state),
                       TENSOR(dst), const int n_snapshots) {
    local float query[S], key[S], decay[S];
    const uint j = get_global_id(0), head = get_group_id(1), seq = get_group_id(2);
    const uint n_head = v_.ne[1], n_tokens = v_.ne[2], n_seqs = v_.ne[3];
    const uint key_head = head % q_.ne[1], key_seq = seq / (n_seqs / q_.ne[3]);
    const bool inside = j < S;
    float row[S];
    for (uint i = 0; i < S; i++) {
        row[i] = inside ? load_f32(AT(state, ((uint4)(i, j, head, seq)))) : 0.0f;
    }
    global float *out = (global float *)(dst + dst_.offset);
    global float *saved = out + count(&v_) + S * (j + S * (head + n_head * seq));
    if (n_tokens == 0 && inside) {
        for (uint i = 0; i < S; i++) saved[i] = row[i];
    }
    for (uint t = 0; t < n_tokens; t++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        EACH(i, S) {
            query[i] = load_f32(AT(q, ((uint4)(i, key_head, t, key_seq)))) / sqrt((float)S);
            key[i] = load_f32(AT(k, ((uint4)(i, key_head, t, key_seq))));
            decay[i] = exp(load_f32(AT(g, ((uint4)(i % GATES, head, t, seq)))));
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (!inside) continue;
        float known = 0, sum = 0;
        for (uint i = 0; i < S; i++) {
            row[i] *= decay[i];
            known += row[i] * key[i];
        }
        const float value = load_f32(AT(v, ((uint4)(j, head, t, seq))));
        const float delta = load_f32(AT(beta, ((uint4)(0, head, t, seq)))) * (value - known);
        for (uint i = 0; i < S; i++) {
            row[i] += delta * key[i];
            sum += row[i] * query[i];
        }
        out[j + S * (head + n_head * (t + n_tokens * seq))] = sum;
        const uint slot = n_tokens - 1 - t;
        if (slot >= n_snapshots) continue;
        for (uint i = 0; i < S; i++) saved[slot * S * S * n_head * n_seqs + i] = row[i];
    }
}
#endif
