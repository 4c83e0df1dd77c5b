// 256 six-bit values around 32 in 16 groups of 16 with byte scales: x = d scale (q - 32).
// Of each half of 128: low nibbles of 0..63 and 64..127, and two upper bits of each quarter.
static inline void group_q6_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 210 * (g / 8);
    const uint part = g % 8 / 4, quarter = g % 4;
    const global uchar *lower = b + 64 * part + 32 * (quarter % 2), *upper = b + 128 + 32 * part;
    const global char *scale = (const global char *)b + 192 + 2 * (g % 8);
    const float d = load_f16(b + 208);
    uchar low[32], high[32];
    even16(lower, low), even16(lower + 16, low + 16);
    even16(upper, high), even16(upper + 16, high + 16);
    for (uint j = 0; j < 32; j++) {
        const int q = (low[j] >> (quarter / 2 * 4) & 15) | (high[j] >> (2 * quarter) & 3) << 4;
        x[j] = d * scale[j / 16] * (q - 32);
    }
}
