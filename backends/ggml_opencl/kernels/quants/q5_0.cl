// 32 five-bit values around 16 with one half scale: x = d (q - 16); the fifth bits are apart.
static inline void group_q5_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 22 * g;
    const float d = load_f16(b);
    const uint fifth = bits32(b + 2);
    uchar q[16];
    even16(b + 6, q);
    for (uint j = 0; j < 32; j++) {
        const int high = fifth >> j & 1;
        x[j] = d * ((q[j % 16] >> (j / 16 * 4) & 15 | high << 4) - 16);
    }
}

static inline float element_q5_0(const global uchar *row, uint i) {
    const global uchar *b = row + 22 * (i / 32);
    const uint j = i % 32;
    const int high = b[2 + j / 8] >> (j % 8) & 1;
    return load_f16(b) * ((b[6 + j % 16] >> (j / 16 * 4) & 15 | high << 4) - 16);
}

static inline void quantize_q5_0(const float *x, global uchar *b) {
    #pragma OPENCL FP_CONTRACT OFF
    const float d = extreme(x) / -16, id = d == 0 ? 0 : 1 / d;
    uint fifth = 0;
    store_f16(b, d);
    for (uint j = 0; j < 16; j++) {
        const uint low = min(31, (int)(x[j] * id + 16.5f));
        const uint high = min(31, (int)(x[j + 16] * id + 16.5f));
        b[6 + j] = (low & 15) | (high & 15) << 4;
        fifth |= low >> 4 << j | high >> 4 << (j + 16);
    }
    for (uint j = 0; j < 4; j++) b[2 + j] = fifth >> (8 * j);
}
