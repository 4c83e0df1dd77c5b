// 16 groups of 16 four-bit indices of uneven levels, six-bit codes: x = d (code - 32) level.
PART(_ik_levels)

static inline void group_iq4_k(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 144 * (g / 8), *q = b + 16 + 16 * k;
    const uint shifts = bits16(b + 2) >> (2 * k), high = b[4 + k / 2] >> (k % 2 * 4);
    for (uint j = 0; j < 32; j++) {
        const uint h = j / 16;
        const int code = (b[8 + k] >> (h * 4) & 15) | (high >> (2 * h) & 3) << 4;
        const float d = load_f16(b) * (code - 32);
        x[j] = d * (ik_levels_4[q[j % 16] >> (h * 4) & 15] + (int)(shifts >> h & 1) * 4);
    }
}
