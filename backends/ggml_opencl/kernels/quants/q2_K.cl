// 256 two-bit values in 16 groups of 16: x = d scale q - d_min min, with scales and minima of four
// bits. Quarters of each half of 128 share bytes.
static inline void group_q2_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 84 * (g / 8), *q = b + 16 + 32 * (g % 8 / 4);
    const float d = load_f16(b + 80), d_min = load_f16(b + 82);
    for (uint j = 0; j < 32; j++) {
        const uchar scale = b[2 * (g % 8) + j / 16];
        x[j] = d * (scale & 15) * (q[j] >> (2 * (g % 4)) & 3) - d_min * (scale >> 4);
    }
}
