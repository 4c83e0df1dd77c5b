// A causal convolution that keeps the last inputs of its sequences.

// An item takes one channel through all tokens. The blocks [D, C, n_seqs] of last inputs are the
// second part of the result.
KERNEL ssm_conv_seq(TENSOR(s), TENSOR(x), TENSOR(w), TENSOR(sq), TENSOR(saved), TENSOR(dst)) {
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
        const uint first = load_i32(AT(sq, ((uint4)(0, t, 0, 0))));
        if (first >= n_seqs) continue;
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
