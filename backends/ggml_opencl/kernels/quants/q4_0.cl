// 32 four-bit values around 8 with one half scale: x = d (q - 8); low nibbles first.
static inline float element_q4_0(const global uchar *row, uint i) {
    const global uchar *b = row + 18 * (i / 32);
    const uint j = i % 32;
    return load_f16(b) * ((b[2 + j % 16] >> (j / 16 * 4) & 15) - 8);
}

static inline void group_q4_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 18 * g;
    const float d = load_f16(b);
    uchar q[16];
    even16(b + 2, q);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * ((q[j] & 15) - 8);
        x[j + 16] = d * ((q[j] >> 4) - 8);
    }
}

static inline void quantize_q4_0(const float *x, global uchar *b) {
    #pragma OPENCL FP_CONTRACT OFF
    const float d = extreme(x) / -8, id = d == 0 ? 0 : 1 / d;
    store_f16(b, d);
    for (uint j = 0; j < 16; j++) {
        const uchar low = min(15, (int)(x[j] * id + 8.5f));
        const uchar high = min(15, (int)(x[j + 16] * id + 8.5f));
        b[2 + j] = low | high << 4;
    }
}
