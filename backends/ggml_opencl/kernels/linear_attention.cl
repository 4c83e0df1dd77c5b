// Linear attention. Group (channels, head, sequence); an item keeps S values of a head's state M.
// All tensors are contiguous: tokens [S, H, T], states [S, S, H, sequences].

#define VALUES(x) ((global float *)(x + x##_.offset))

// The first element of this head's row of token t, of equally many tokens a sequence.
static inline uint token(const tensor_t *x, uint t) {
    const uint n_tokens = x->ne[2] / get_num_groups(2);
    return S * (get_group_id(1) + x->ne[1] * (t + n_tokens * get_group_id(2)));
}

// This head's first element of the state.
static inline uint head_state(const tensor_t *x) {
    return S * S * (get_group_id(1) + x->ne[1] * get_group_id(2));
}

#define EACH_TOKEN(t, x) for (uint t = 0; t < x##_.ne[2] / get_num_groups(2); t++)

#if defined(RWKV_WKV6)
// o = r (tf * k v^T + M), M = td * M + k v^T. An item keeps a column of M.
KERNEL rwkv_wkv6(TENSOR(k), TENSOR(v), TENSOR(r), TENSOR(tf), TENSOR(td), TENSOR(state),
                 TENSOR(dst), TENSOR(kept), const int n_snapshots) {
    const uint j = get_global_id(0), start = head_state(&k_) + j;
    if (j >= S) return;
    const uint n_tokens = k_.ne[2] / get_num_groups(2);
    float m[S];
    for (uint i = 0; i < S; i++) m[i] = VALUES(state)[start + S * i];
    EACH_TOKEN(t, k) {
        const uint row = token(&k_, t);
        const float value = VALUES(v)[row + j];
        float sum = 0;
        for (uint i = 0; i < S; i++) {
            const float kv = VALUES(k)[row + i] * value;
            sum += VALUES(r)[row + i] * (VALUES(tf)[S * get_group_id(1) + i] * kv + m[i]);
            m[i] = VALUES(td)[row + i] * m[i] + kv;
        }
        VALUES(dst)[row + j] = sum;
        const uint slot = n_tokens - 1 - t;
        if (slot >= n_snapshots) continue;
        global float *saved = STATES(kept, slot, get_group_id(2)) + S * S * get_group_id(1) + j;
        for (uint i = 0; i < S; i++) saved[S * i] = m[i];
    }
}
#endif

#if defined(RWKV_WKV7)
// M[i] = w * M[i] + v[i] k + <a, M[i]> b, o[i] = <M[i], r>. An item keeps a row of M.
KERNEL rwkv_wkv7(TENSOR(r), TENSOR(w), TENSOR(k), TENSOR(v), TENSOR(a), TENSOR(b), TENSOR(state),
                 TENSOR(dst), TENSOR(kept), const int n_snapshots) {
    const uint i = get_global_id(0), start = head_state(&k_) + S * i;
    if (i >= S) return;
    const uint n_tokens = k_.ne[2] / get_num_groups(2);
    float m[S];
    for (uint j = 0; j < S; j++) m[j] = VALUES(state)[start + j];
    EACH_TOKEN(t, k) {
        const uint row = token(&k_, t);
        const float value = VALUES(v)[row + i];
        float removed = 0, sum = 0;
        for (uint j = 0; j < S; j++) removed += m[j] * VALUES(a)[row + j];
        for (uint j = 0; j < S; j++) {
            const float added = value * VALUES(k)[row + j] + removed * VALUES(b)[row + j];
            m[j] = VALUES(w)[row + j] * m[j] + added;
            sum += m[j] * VALUES(r)[row + j];
        }
        VALUES(dst)[row + i] = sum;
        const uint slot = n_tokens - 1 - t;
        if (slot >= n_snapshots) continue;
        global float *saved = STATES(kept, slot, get_group_id(2)) + S * S * get_group_id(1);
        for (uint j = 0; j < S; j++) saved[S * i + j] = m[j];
    }
}
#endif

#if defined(GATED_LINEAR_ATTN)
// M = g * M + k v^T, o = scale * q M. An item keeps a column of M.
KERNEL gated_linear_attn(TENSOR(k), TENSOR(v), TENSOR(q), TENSOR(g), TENSOR(state), TENSOR(dst),
                         TENSOR(kept), const int n_snapshots, const float scale) {
    const uint j = get_global_id(0), start = head_state(&k_) + j;
    if (j >= S) return;
    const uint n_tokens = k_.ne[2] / get_num_groups(2);
    float m[S];
    for (uint i = 0; i < S; i++) m[i] = VALUES(state)[start + S * i];
    EACH_TOKEN(t, k) {
        const uint row = token(&k_, t);
        const float value = VALUES(v)[row + j];
        float sum = 0;
        for (uint i = 0; i < S; i++) {
            m[i] = VALUES(g)[row + i] * m[i] + VALUES(k)[row + i] * value;
            sum += VALUES(q)[row + i] * m[i];
        }
        VALUES(dst)[row + j] = scale * sum;
        const uint slot = n_tokens - 1 - t;
        if (slot >= n_snapshots) continue;
        global float *saved = STATES(kept, slot, get_group_id(2)) + S * S * get_group_id(1) + j;
        for (uint i = 0; i < S; i++) saved[S * i] = m[i];
    }
}
#endif
