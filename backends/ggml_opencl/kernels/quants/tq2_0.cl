// 256 values -1, 0 or 1 times one scale. Quarters of each half of 128 share bytes.
static inline void group_tq2_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 66 * (g / 8), *q = b + 32 * (g % 8 / 4);
    const float d = load_f16(b + 64);
    for (uint j = 0; j < 32; j++) x[j] = d * ((q[j] >> (2 * (g % 4)) & 3) - 1);
}
