// 32 five-bit values with half scale and minimum: x = d q + m; the fifth bits are apart.
static inline void group_q5_1(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 24 * g;
    const float d = load_f16(b), m = load_f16(b + 2);
    const uint fifth = bits32(b + 4);
    uchar q[16];
    even16(b + 8, q);
    for (uint j = 0; j < 32; j++) {
        const int high = fifth >> j & 1;
        x[j] = d * (q[j % 16] >> (j / 16 * 4) & 15 | high << 4) + m;
    }
}

static inline float element_q5_1(const global uchar *row, uint i) {
    const global uchar *b = row + 24 * (i / 32);
    const uint j = i % 32;
    const int high = b[4 + j / 8] >> (j % 8) & 1;
    return load_f16(b) * (b[8 + j % 16] >> (j / 16 * 4) & 15 | high << 4) + load_f16(b + 2);
}

static inline void quantize_q5_1(const float *x, global uchar *b) {
    #pragma OPENCL FP_CONTRACT OFF
    float m, d = range(x, &m) / 31;
    const float id = d == 0 ? 0 : 1 / d;
    uint fifth = 0;
    store_f16(b, d);
    store_f16(b + 2, m);
    for (uint j = 0; j < 16; j++) {
        const uint low = (x[j] - m) * id + 0.5f, high = (x[j + 16] - m) * id + 0.5f;
        b[8 + j] = (low & 15) | (high & 15) << 4;
        fifth |= low >> 4 << j | high >> 4 << (j + 16);
    }
    for (uint j = 0; j < 4; j++) b[4 + j] = fifth >> (8 * j);
}
