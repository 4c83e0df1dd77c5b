// Delta nets.

#if defined(GATED)
// Group (value channels, head, sequence); an item keeps one row [S] of the state. GATES is 1 or S.
KERNEL gated_delta_net(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(g), TENSOR(beta), TENSOR(state),
                       TENSOR(dst), TENSOR(kept),
#if IN_ROWS
                       TENSOR(ids), const int n_snapshots, CHECKED
#else
                       const int n_snapshots
#endif
) {
    local float query[S], key[S], decay[S];
    const uint j = get_global_id(0), head = get_group_id(1), seq = get_group_id(2);
    const uint n_head = v_.ne[1], n_tokens = v_.ne[2], n_seqs = v_.ne[3];
    const uint key_head = head % q_.ne[1], key_seq = seq / (n_seqs / q_.ne[3]);
    const bool inside = j < S;
    uint start = seq; // where the states come from
#if IN_ROWS
    start = load_i32(AT(ids, ((uint4)(seq, 0, 0, 0))));
    if (!IN_RANGE((int)start, state_.ne[3])) return;
#endif
    float row[S];
    for (uint i = 0; i < S; i++) {
        row[i] = inside ? load_f32(AT(state, ((uint4)(i, j, head, start)))) : 0.0f;
    }
    global float *out = (global float *)(dst + dst_.offset);
    const uint first = S * (j + S * head);
    if (n_tokens == 0 && inside) {
        for (uint i = 0; i < S; i++) STATES(kept, 0, seq)[first + i] = row[i];
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
        for (uint i = 0; i < S; i++) STATES(kept, slot, seq)[first + i] = row[i];
    }
}
#endif

#if defined(UNGATED)
// States are not transposed: [S (value), S (key), H, B].
#define LARGEST 1e6f

// Group (value channels, head, sequence); an item keeps a column [S] of the state. GATES is 1 or S.
KERNEL delta_net(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(g), TENSOR(beta), TENSOR(state),
                 TENSOR(saved), TENSOR(dst), const int groups) {
    const uint j = get_global_id(0), head = get_group_id(1), seq = get_group_id(2);
    const uint n_tokens = v_.ne[1], n_head = v_.ne[2], n_seqs = v_.ne[3], n_keys = k_.ne[2];
    if (j >= S) return;
    const uint key_head = groups ? head / (n_head / n_keys) : head % n_keys;
    const uint start = S * S * (head + n_head * seq) + j;
    const global float *before = (const global float *)(state + state_.offset) + start;
    global float *out = (global float *)(dst + dst_.offset);
    global float *kept = (global float *)(saved + saved_.offset) + start;
    float m[S];
    for (uint i = 0; i < S; i++) m[i] = before[S * i];
    for (uint t = 0; t < n_tokens; t++) {
        const global uchar *query = AT(q, ((uint4)(0, t, key_head, seq)));
        const global uchar *key = AT(k, ((uint4)(0, t, key_head, seq)));
        float known = 0, sum = 0;
        for (uint i = 0; i < S; i++) {
            m[i] *= exp(fmin(load_f32(AT(g, ((uint4)(t, i % GATES, head, seq)))), 50.0f));
            known += m[i] * load_f32(key + 4 * i);
        }
        const float rate = load_f32(AT(beta, ((uint4)(0, t, head, seq))));
        const float value = load_f32(AT(v, ((uint4)(j, t, head, seq))));
        const float delta = (value - known) / (1.0f + exp(-rate));
        for (uint i = 0; i < S; i++) {
            m[i] += delta * load_f32(key + 4 * i);
            sum += m[i] * load_f32(query + 4 * i);
            m[i] = clamp(m[i], -LARGEST, LARGEST);
        }
        out[j + S * (head + n_head * (t + n_tokens * seq))] = sum / sqrt((float)S);
#if SAVES
        if (t + 1 == n_tokens) continue;
        for (uint i = 0; i < S; i++) kept[S * S * n_head * n_seqs * t + S * i] = m[i];
#endif
    }
    for (uint i = 0; i < S; i++) out[count(&v_) + start + S * i] = m[i];
}
#endif
