// 32 signed bytes with one half scale: x = d q.
static inline float element_q8_0(const global uchar *row, uint i) {
    const global uchar *b = row + 34 * (i / 32);
    return load_f16(b) * ((const global char *)b)[2 + i % 32];
}

static inline void group_q8_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 34 * g;
    const float d = load_f16(b);
    uchar q[32];
    even16(b + 2, q), even16(b + 18, q + 16);
    for (uint j = 0; j < 32; j++) x[j] = d * (char)q[j];
}

static inline void quantize_q8_0(const float *x, global uchar *b) {
    const float d = largest(x, 32) / 127, id = d == 0 ? 0 : 1 / d;
    store_f16(b, d);
    for (uint j = 0; j < 32; j++) ((global char *)b)[2 + j] = (char)round(x[j] * id);
}
