// 8 groups of 32 two-bit indices of uneven levels, five-bit codes: x = d (code - 16) level.
PART(_ik_levels)

static inline void group_iq2_ks(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 72 * (g / 8), *q = b + 8 + 32 * (k / 4);
    const int code = (b[4 + k / 2] >> (k % 2 * 4) & 15) | (b[3] >> k & 1) << 4;
    const int shift = (b[2] >> k & 1) * 5;
    const float d = load_f16(b) * (code - 16);
    for (uint j = 0; j < 32; j++) x[j] = d * (ik_levels_2[q[j] >> (k % 4 * 2) & 3] + shift);
}
