// State-space models.

#if defined(CONVOLUTION)
PART(ssm/_conv)

KERNEL ssm_conv(TENSOR(sx), TENSOR(c), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    store_f32(AT(dst, i), convolved(sx, sx_, c, c_, i));
}
#endif

#if defined(SEQUENCES)
// An item takes one channel through all tokens. The blocks [D, C, n_seqs] of last inputs are the
// second part of the result.
KERNEL ssm_conv_seq(TENSOR(s), TENSOR(x), TENSOR(w), TENSOR(sq), TENSOR(saved), TENSOR(dst),
                    CHECKED) {
    const uint c = get_global_id(0), n_channels = x_.ne[0], n_seqs = s_.ne[2];
    if (c >= n_channels) return;
    global float *y = (global float *)(dst + dst_.offset);
    global float *blocks = y + count(&x_) + D * c;
    const uint apart = D * n_channels;
    for (uint seq = 0; seq < n_seqs; seq++) {
        global float *block = blocks + apart * seq;
        block[0] = 0;
        for (uint i = 1; i < D; i++) block[i] = load_f32(AT(s, ((uint4)(i - 1, c, seq, 0))));
    }
    for (uint t = 0; t < x_.ne[1]; t++) {
        const int first = load_i32(AT(sq, ((uint4)(0, t, 0, 0))));
        if (!IN_RANGE(first, n_seqs)) continue;
        global float *block = blocks + apart * first;
        float sum = 0;
        for (uint i = 0; i < D; i++) {
            block[i] = i + 1 < D ? block[i + 1] : load_f32(AT(x, ((uint4)(c, t, 0, 0))));
            sum += block[i] * load_f32(AT(w, ((uint4)(i, c, 0, 0))));
        }
        y[c + n_channels * t] = sum;
        for (uint other = 1; other < n_seqs; other++) {
            const uint seq = load_i32(AT(sq, ((uint4)(other, t, 0, 0))));
            if (seq >= n_seqs) break;
            for (uint i = 0; i < D; i++) blocks[apart * seq + i] = block[i];
        }
#if SAVES
        global float *kept = (global float *)(saved + saved_.offset);
        kept += (D - 1) * (c + n_channels * t);
        for (uint i = 1; i < D; i++) kept[i - 1] = block[i];
#endif
    }
}
#endif

#if defined(SCAN)
// Group (channels, head, sequence); an item keeps the N states of one channel.
KERNEL ssm_scan(TENSOR(s), TENSOR(x), TENSOR(dt), TENSOR(a), TENSOR(b), TENSOR(c), TENSOR(ids),
                TENSOR(dst), TENSOR(kept), const int n_snapshots, CHECKED) {
    const uint d = get_global_id(0), head = get_group_id(1), seq = get_group_id(2);
    const uint dim = x_.ne[0], n_head = x_.ne[1], n_tokens = x_.ne[2];
    if (d >= dim) return;
    const uint group = head / (n_head / b_.ne[1]);
    const int cell = load_i32(AT(ids, ((uint4)(seq, 0, 0, 0))));
    if (!IN_RANGE(cell, s_.ne[3])) return;
    float state[N];
    for (uint n = 0; n < N; n++) state[n] = load_f32(AT(s, ((uint4)(n, d, head, cell))));
    global float *y = (global float *)(dst + dst_.offset);
    const uint first = N * (d + dim * head);
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
        for (uint n = 0; n < N; n++) STATES(kept, slot, seq)[first + n] = state[n];
    }
}
#endif
