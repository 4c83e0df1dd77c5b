// 32 four-bit values with half scale and minimum: x = d q + m.
static inline void group_q4_1(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 20 * g;
    const float d = load_f16(b), m = load_f16(b + 2);
    uchar q[16];
    even16(b + 4, q);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * (q[j] & 15) + m;
        x[j + 16] = d * (q[j] >> 4) + m;
    }
}

static inline float element_q4_1(const global uchar *row, uint i) {
    const global uchar *b = row + 20 * (i / 32);
    const uint j = i % 32;
    return load_f16(b) * (b[4 + j % 16] >> (j / 16 * 4) & 15) + load_f16(b + 2);
}

static inline void quantize_q4_1(const float *x, global uchar *b) {
    #pragma OPENCL FP_CONTRACT OFF
    float m, d = range(x, &m) / 15;
    const float id = d == 0 ? 0 : 1 / d;
    store_f16(b, d);
    store_f16(b + 2, m);
    for (uint j = 0; j < 16; j++) {
        const uchar low = min(15, (int)((x[j] - m) * id + 0.5f));
        const uchar high = min(15, (int)((x[j + 16] - m) * id + 0.5f));
        b[4 + j] = low | high << 4;
    }
}
