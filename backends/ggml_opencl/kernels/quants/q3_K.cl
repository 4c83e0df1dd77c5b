// 256 three-bit values around 4 in 16 groups of 16 with six-bit scales: x = d (scale - 32) (q - 4).
// Quarters of each half of 128 share bytes; bit g of b[j] is the third bit of value j of eighth g.
static inline void group_q3_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 110 * (g / 8), *q = b + 32 + 32 * (g % 8 / 4), *s = b + 96;
    const float d = load_f16(b + 108);
    for (uint j = 0; j < 32; j++) {
        const uint k = 2 * (g % 8) + j / 16;
        const int scale = (s[k % 8] >> (k / 8 * 4) & 15) | (s[8 + k % 4] >> (k / 4 * 2) & 3) << 4;
        const int value = (q[j] >> (2 * (g % 4)) & 3) | (b[j] >> (g % 8) & 1) << 2;
        x[j] = d * (scale - 32) * (value - 4);
    }
}
