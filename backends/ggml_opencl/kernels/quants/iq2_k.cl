// 16 groups of 16 two-bit indices of uneven levels, four-bit codes: x = d (code - 8) level.
PART(_ik_levels)

static inline void group_iq2_k(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8, shift = k % 4 * 2;
    const global uchar *b = row + 76 * (g / 8), *q = b + 12 + 32 * (k / 4);
    const uint shifts = bits16(b + 2) >> (2 * k);
    for (uint j = 0; j < 32; j++) {
        const float d = load_f16(b) * ((b[4 + k] >> (j / 16 * 4) & 15) - 8);
        x[j] = d * (ik_levels_2[q[j] >> shift & 3] + (int)(shifts >> (j / 16) & 1) * 5);
    }
}
