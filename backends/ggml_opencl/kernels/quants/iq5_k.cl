// 16 groups of 16 five-bit indices of uneven levels, six-bit codes: x = d (code - 32) level. The
// fifth bits are apart.
PART(_ik_levels)

static inline void group_iq5_k(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 176 * (g / 8), *q = b + 16 + 32 * (k / 2), *fifth = b + 144;
    const uint shifts = bits16(b + 2) >> (2 * k), high = b[4 + k / 2] >> (k % 2 * 4);
    for (uint j = 0; j < 32; j++) {
        const uint h = j / 16, index = (q[j] >> (k % 2 * 4) & 15) | (fifth[j] >> k & 1) << 4;
        const int code = (b[8 + k] >> (h * 4) & 15) | (high >> (2 * h) & 3) << 4;
        const float d = load_f16(b) * (code - 32);
        x[j] = d * (ik_levels_5[index] + (int)(shifts >> h & 1) * 2);
    }
}
