// 256 values -1, 0 or 1 times one scale. Quarters of each half of 128 share bytes.
static inline void group_tq2_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 66 * (g / 8), *q = b + 32 * (g % 8 / 4);
    const float d = load_f16(b + 64);
    for (uint j = 0; j < 32; j++) x[j] = d * ((q[j] >> (2 * (g % 4)) & 3) - 1);
}

static inline void quantize_tq2_0(const float *x, global uchar *b) {
    const float d = largest(x, 256), id = d == 0 ? 0 : 1 / d;
    store_f16(b + 64, d);
    for (uint k = 0; k < 64; k++) {
        const float *first = x + k / 32 * 128 + k % 32;
        uchar q = 0;
        for (uint j = 0; j < 4; j++) q |= ((int)round(first[32 * j] * id) + 1) << (2 * j);
        b[k] = q;
    }
}
