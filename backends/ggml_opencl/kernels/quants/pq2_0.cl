// 128 values -1, 0, 1 or 2 times one scale.
static inline void group_pq2_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 34 * (g / 4), *q = b + 2 + 8 * (g % 4);
    const float d = load_f16(b);
    for (uint j = 0; j < 32; j++) x[j] = d * ((q[j / 4] >> (j % 4 * 2) & 3) - 1);
}

static inline void quantize_pq2_0(const float *x, global uchar *b) {
    const float d = largest(x, 128), id = d == 0 ? 0 : 1 / d;
    store_f16(b, d);
    for (uint k = 0; k < 32; k++) {
        uchar q = 0;
        for (uint j = 0; j < 4; j++) q |= ((int)round(x[4 * k + j] * id) + 1) << (2 * j);
        b[2 + k] = q;
    }
}
