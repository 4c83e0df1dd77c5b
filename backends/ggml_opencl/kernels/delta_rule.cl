// The delta rule on states that are not transposed: [S (value), S (key), H, B].

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
